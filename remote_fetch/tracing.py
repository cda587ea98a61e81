"""Spans of OpenTelemetry for a read: one for the read, and one below it for each GET and each answer of a broker.

    with traced_read("orders") as observer:
        table = read_arrow("orders", config=config, observer=observer).read_all()

Names are those of OpenTelemetry's semantic conventions for messaging with Kafka; what they do not have begins with
`remote_fetch.`.

Rules of the file:

- opentelemetry-api is an extra, imported when a read is traced. Its providers and exporters are the application's.
- A GET is known when it has ended. Its span begins that much earlier.
- Spans hold no keys, values or URLs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from remote_fetch.errors import MissingExtra
from remote_fetch.observe import (
    Counters,
    Event,
    Fallback,
    Notice,
    Observer,
    RangeFetched,
    RangeReread,
    RangeRetried,
)

__all__ = ["traced_read"]

_SCOPE = "remote_fetch"
_SYSTEM = {"messaging.system": "kafka"}


@contextmanager
def traced_read(topic: str, *, tracer_provider: Any = None, group: str | None = None) -> Iterator[Observer]:
    """The observer of a read that makes spans of it. The read's own span ends with the block.

    - The span `receive TOPIC` is below the current span. It has the attributes of the conventions, the records, the
      GETs and the bytes. An exception that leaves the block is recorded, and sets its status to ERROR.
    - Below it are `GET segment` and `GET index` for each GET.
    - Retries, second readings, fallbacks and notices are events of the read's span.
    - `tracer_provider` None: the global one. `group` is the consumer group, if there is one.

    Raises MissingExtra without opentelemetry-api.
    """
    try:
        from opentelemetry import trace  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingExtra("traces need opentelemetry-api", extra="tracing") from error
    tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
    attributes = {
        **_SYSTEM,
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": topic,
        **({} if group is None else {"messaging.consumer.group.name": group}),
    }
    with tracer.start_as_current_span(f"receive {topic}", kind=trace.SpanKind.CLIENT, attributes=attributes) as span:
        spans = _Spans(tracer, span, trace.set_span_in_context(span), trace.SpanKind.CLIENT)
        try:
            yield spans
        finally:
            span.set_attributes(spans.totals())


class _Spans:
    """Turns events into spans and events of a span. Called from several threads."""

    def __init__(self, tracer: Any, span: Any, context: Any, kind: Any) -> None:
        self._tracer = tracer
        self._span = span
        self._context = context
        self._kind = kind
        self._counters = Counters()

    def totals(self) -> dict[str, int]:
        """The attributes of the whole read."""
        report = self._counters.report()
        return {
            "messaging.batch.message_count": report.records,
            "remote_fetch.gets": report.remote_gets + report.index_gets,
            "remote_fetch.bytes": report.remote_bytes + report.index_bytes,
            "remote_fetch.broker.records": report.broker_records,
            "remote_fetch.fallbacks": sum(report.fallbacks.values()),
        }

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._counters(event)
        if isinstance(event, RangeFetched):
            self._get(event)
        elif isinstance(event, Notice):
            self._span.add_event("notice", {"remote_fetch.notice": event.text})
        elif isinstance(event, (Fallback, RangeReread, RangeRetried)):
            self._happened(event)

    def _get(self, event: RangeFetched) -> None:
        end_ns = time.time_ns()
        name = "GET segment" if event.index_type is None else "GET index"
        attributes = {**_place(event), "messaging.message.body.size": event.size_bytes}
        if event.index_type is not None:
            attributes["remote_fetch.index"] = event.index_type.value
        span = self._tracer.start_span(
            name, context=self._context, kind=self._kind, attributes=attributes,
            start_time=end_ns - int(event.duration_s * 1e9),
        )  # fmt: skip
        span.end(end_time=end_ns)

    def _happened(self, event: Fallback | RangeReread | RangeRetried) -> None:
        names = {Fallback: "fallback", RangeReread: "second reading", RangeRetried: "retry"}
        attributes = {**_place(event), "error.type": event.reason}
        if isinstance(event, Fallback):
            attributes |= {
                "remote_fetch.first_offset": event.first_offset,
                "remote_fetch.last_offset": event.last_offset,
            }
        self._span.add_event(names[type(event)], attributes)


def _place(event: RangeFetched | Fallback | RangeReread | RangeRetried) -> dict[str, Any]:
    partition = event.partition
    return {
        **_SYSTEM,
        "messaging.destination.name": partition.topic,
        "messaging.destination.partition.id": str(partition.partition),
    }

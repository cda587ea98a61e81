"""Spans of a read: their names, attributes and parents, with OpenTelemetry's own SDK."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from remote_fetch import read_arrow
from remote_fetch.errors import MissingExtra
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import BrokerRead, Counters, Event, Fallback, Notice, RangeReread, RangeRetried
from remote_fetch.tracing import traced_read
from tests.golden.conftest import SETS, Tier

TIER = Tier(SETS[0])
PARTITION = TopicIdPartition(Uuid(bytes(16)), "tx", 3)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def the_read(exporter: InMemorySpanExporter) -> ReadableSpan:
    (found,) = (span for span in exporter.get_finished_spans() if span.name.startswith("receive"))
    return found


def test_a_read_and_its_gets(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    counters = Counters()
    with (
        provider.get_tracer("application").start_as_current_span("job") as job,
        traced_read("tx", tracer_provider=provider, group="billing") as observer,
    ):

        def both(event: Event) -> None:
            observer(event)
            counters(event)

        rows = read_arrow("tx", config=TIER.config, observer=both).read_all().num_rows
    report = counters.report()
    read = the_read(exporter)
    assert read.parent is not None
    assert read.parent.span_id == job.get_span_context().span_id
    assert read.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "tx",
        "messaging.consumer.group.name": "billing",
        "messaging.batch.message_count": rows,
        "remote_fetch.gets": report.remote_gets + report.index_gets,
        "remote_fetch.bytes": report.remote_bytes + report.index_bytes,
        "remote_fetch.broker.records": 0,
        "remote_fetch.fallbacks": 0,
    }
    gets = [span for span in exporter.get_finished_spans() if span.name.startswith("GET")]
    assert [span.name for span in gets].count("GET segment") == report.remote_gets > 0
    assert [span.name for span in gets].count("GET index") == report.index_gets > 0
    for span in gets:
        assert span.parent is not None
        assert span.parent.span_id == read.context.span_id
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        assert span.attributes is not None
        assert span.attributes["messaging.destination.name"] == "tx"
        assert span.attributes["messaging.destination.partition.id"] in ("0", "1")


def test_what_happens_is_an_event(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    with traced_read("tx", tracer_provider=provider) as observer:
        observer(Fallback(PARTITION, 5, 9, "auth"))
        observer(RangeRetried(PARTITION, "throttled"))
        observer(RangeReread(PARTITION, 7, "corrupt"))
        observer(Notice("a sentence"))
        observer(BrokerRead(PARTITION, 5, 70))
    read = the_read(exporter)
    assert [(event.name, (event.attributes or {}).get("error.type")) for event in read.events] == [
        ("fallback", "auth"), ("retry", "throttled"), ("second reading", "corrupt"), ("notice", None),
    ]  # fmt: skip
    assert read.attributes is not None
    assert (read.attributes["remote_fetch.fallbacks"], read.attributes["remote_fetch.broker.records"]) == (1, 5)


def test_an_error_of_the_read(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(OSError, match="gone"), traced_read("tx", tracer_provider=provider):
        raise OSError("the store is gone")
    read = the_read(exporter)
    assert not read.status.is_ok
    assert [event.name for event in read.events] == ["exception"]


def test_without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"remote-fetch\[tracing\]"), traced_read("tx"):
        pass

"""What stands behind a RemoteConsumer that is switched on: the session with the store, the feeds, the merge.

Rules of the file: opened after the parent's constructor has succeeded, closed after the parent's `close`, within a
bounded time; holds the parent's methods, and so is collected together with the consumer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.consumer.committed import Committed
from remote_fetch.consumer.feed import Source
from remote_fetch.consumer.inner import Inner
from remote_fetch.consumer.merge import Merge
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.partitions import Partitions
from remote_fetch.consumer.places import COMMITTED, keep_from_fetching
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.consumer.workers import Workers
from remote_fetch.observe import Event, Observer
from remote_fetch.read.fallback import Circuit
from remote_fetch.read.session import Session

__all__ = ["Remote"]

_LOG = logging.getLogger("remote_fetch")
_CLOSE_S = 1.0
_COMMITS_S = 1.0
"""How long `assign` waits for the commits of partitions that are assigned once more."""

Callback = Callable[[Any, list[TopicPartition]], Any]


class Remote:
    """The parts of one consumer, `inner` being its librdkafka half. Raises what `Session.open` raises.

    `gate` is for the consumer: who is inside may come again, anybody else waits.
    """

    def __init__(
        self,
        inner: Inner,
        settings: ConsumerSettings,
        metrics: Metrics,
        observer: Observer,
        gate: AbstractContextManager[Any],
    ) -> None:
        def observe(event: Event) -> None:
            metrics(event)
            try:
                observer(event)
            except Exception:  # it runs in threads that have records to bring
                _LOG.exception("an observer failed")

        self._inner = inner
        self._settings = settings
        self.gate = gate
        self.metrics = metrics
        self.session = Session.open(settings.remote, observe, shared=True)
        max_bytes = self.session.config.number("fetch.remote.max.bytes")
        circuit = Circuit(first_pause_ms=settings.retry_pause_ms)
        source = Source(self.session, settings.isolation, max_bytes, settings.queued_bytes, circuit)
        self._workers = Workers()
        self._end_threads = weakref.finalize(self, self._workers.close, 0.0)
        self.committed = Committed(self._ask_group, self._workers.ring)
        self.partitions = Partitions(inner, settings, source, self._workers, self.committed)
        self.merge = Merge(inner, self.partitions, self._workers, settings.reset, metrics.broker_gave)
        self.is_closing = False
        self.was_assigned = False
        """Whether the application has assigned, or unassigned, by itself since the callback of a rebalance began."""

    def settle(self) -> None:
        """Bring positions up to date, and what is stored of them for commits."""
        self.merge.settle()
        self.partitions.store()

    def assign(self, partitions: list[TopicPartition], *, is_incremental: bool) -> None:
        """As `Consumer.assign` and `Consumer.incremental_assign`."""
        self.was_assigned = True
        assign = self._inner.incremental_assign if is_incremental else self._inner.assign
        if self.is_closing:  # nothing will be read, and questions to the group may find no answer any more
            assign(partitions)
            return
        self.settle()
        if not is_incremental:
            self._let_go_of(partitions)
        is_there = is_incremental and bool(self.partitions.of(partitions))  # which librdkafka refuses
        assign(partitions if is_there else keep_from_fetching(self._inner, partitions))
        self.partitions.begin(partitions, replaces=not is_incremental)

    def unassigned(self, partitions: Sequence[TopicPartition] | None) -> None:
        """Partitions are being taken away; None: all."""
        self.settle()
        self.partitions.drop(partitions)

    def _let_go_of(self, partitions: Sequence[TopicPartition]) -> None:
        """Have stored offsets committed before it is asked what was committed, as librdkafka does within one `assign`.

        Where the same partition is assigned once more, to go on where it is.
        """
        again = self.partitions.of(one for one in partitions if one.offset in COMMITTED)
        if again:
            with contextlib.suppress(KafkaException):  # `assign` will meet the same, and raise it
                self._inner.unassign()
                self.partitions.drop(None)
                # The brokers answer one connection in order: after this answer the commits are made.
                self._inner.committed([entry.at() for entry in again], timeout=_COMMITS_S)

    def _ask_group(self, partitions: Sequence[TopicPartition], timeout_s: float) -> Sequence[TopicPartition]:
        cluster, group = self.session.cluster, self._settings.librdkafka.get("group.id")
        if cluster is None or group is None:
            return []
        return cluster.committed(str(group), partitions, self._settings.isolation, timeout_s=timeout_s)

    def on_assign(self, consumer: Any, partitions: list[TopicPartition], callback: Callback | None) -> None:
        """A rebalance gives partitions."""
        given = [TopicPartition(one.topic, one.partition, one.offset) for one in partitions]
        self.was_assigned = False
        try:
            if callback is not None:
                callback(consumer, partitions)
        finally:  # as in the parent, what the callback has not assigned is assigned also where it failed
            if not self.was_assigned:
                self.assign(given, is_incremental=self._settings.is_cooperative)

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition], callback: Callback | None) -> None:
        """A rebalance takes partitions, or they are lost."""
        gone = list(partitions)
        self.settle()
        try:
            if callback is not None:
                callback(consumer, partitions)
        finally:
            self.unassigned(gone)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As `Consumer.set_sasl_credentials`, for the store's own clients of brokers."""
        _within(_CLOSE_S, lambda: self.session.set_sasl_credentials(username, password))

    def close(self) -> None:
        """End the feeds and the session."""
        self.partitions.drop(None)
        self.session.reader.close()
        self._end_threads.detach()
        self._workers.close(_CLOSE_S)
        _within(_CLOSE_S, self.session.close)


def _within(timeout_s: float, call: Callable[[], None]) -> None:
    """Make a call that may have to wait until a broker, or nobody, has answered another thread; wait a bounded time.

    What it does is then done later, within that question's own deadline.
    """
    thread = threading.Thread(target=call, name="remote-fetch-session", daemon=True)
    thread.start()
    thread.join(timeout_s)

"""What stands behind a RemoteConsumer that is switched on: the session with the store, the feeds, the merge.

Rules of the file: opened after the parent's constructor has succeeded, closed after the parent's `close`, within a
bounded time; holds the parent's methods, and so is collected together with the consumer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.entries import UNKNOWN
from remote_fetch.consumer.feed import Source
from remote_fetch.consumer.inner import Inner
from remote_fetch.consumer.merge import Merge
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.partitions import Partitions, may_be_tiered
from remote_fetch.consumer.settings import ConsumerSettings, ResetPolicy
from remote_fetch.consumer.states import BEGINNING, END, STORED
from remote_fetch.consumer.workers import Workers
from remote_fetch.observe import Event, Observer
from remote_fetch.read.fallback import Circuit
from remote_fetch.read.session import Session

__all__ = ["Remote", "ask_for_ends"]

_LOG = logging.getLogger("remote_fetch")
_COMMITTED_S = 5.0
"""Longest wait for the committed offsets of an assignment, and for the ends of its logs."""
_FIRST_PATIENCE_S = 0.03
_CLOSE_S = 1.0
_COMMITTED = (UNKNOWN, STORED)
"""With these a partition is assigned to go on where the group has committed."""

Callback = Callable[[Any, list[TopicPartition]], Any]


def ask_for_ends(inner: Inner, asked: list[TopicPartition]) -> list[TopicPartition]:
    """What the brokers answer to a question for ends; what they do not answer in time stays as it was asked.

    A question that is put while librdkafka replaces its bootstrap connection is lost with that, and it takes its time
    (0.7 s) to ask again. So we do, and wait longer each time. Librdkafka may also come back without an answer and
    without an error.
    """
    deadline_s, patience_s = time.monotonic() + _COMMITTED_S, _FIRST_PATIENCE_S
    while True:
        left_s = deadline_s - time.monotonic()
        found: list[TopicPartition] = []
        try:
            found = inner.offsets_for_times(asked, timeout=min(patience_s, left_s))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                return []
        is_answered = bool(found) and all(one.error is not None or one.offset >= 0 for one in found)
        if is_answered or patience_s >= left_s:
            return found
        patience_s *= 2


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
        self.partitions = Partitions(inner, settings, source, self._workers)
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
        starts = self._resolve(partitions)
        assign(self.partitions.instead(partitions, starts, self._ends(partitions, starts)))
        self.partitions.begin(partitions, starts, replaces=not is_incremental)

    def unassigned(self, partitions: Sequence[TopicPartition] | None) -> None:
        """Partitions are being taken away; None: all."""
        self.settle()
        self.partitions.drop(partitions)

    def _let_go_of(self, partitions: Sequence[TopicPartition]) -> None:
        """Have stored offsets committed before it is asked what was committed, as librdkafka does within one `assign`.

        Where the same partition is assigned once more, to go on where it is.
        """
        if self.partitions.of(one for one in partitions if one.offset in _COMMITTED):
            with contextlib.suppress(KafkaException):  # `assign` will meet the same, and raise it
                self._inner.unassign()
                self.partitions.drop(None)

    def _resolve(self, partitions: Sequence[TopicPartition]) -> list[int]:
        """Where to begin: what was given, else what was committed, else what `auto.offset.reset` says."""
        unknown = [one for one in partitions if one.offset in _COMMITTED]
        committed: dict[tuple[str, int], int] = {}
        if unknown:
            try:
                found = self._inner.committed(unknown, timeout=_COMMITTED_S)
            except KafkaException:
                found = []  # librdkafka will ask again, and tell
            for one in found:
                if one.error is None:
                    committed[one.topic, one.partition] = one.offset if one.offset >= 0 else self._reset_offset()
        return [committed.get((one.topic, one.partition), one.offset) for one in partitions]

    def _ends(self, partitions: Sequence[TopicPartition], starts: Sequence[int]) -> dict[tuple[str, int], int]:
        """Where the logs of those end now that may be read from the store, as far as the brokers say."""
        pairs = zip(partitions, starts, strict=True)
        asked = [TopicPartition(one.topic, one.partition, END) for one, start in pairs if may_be_tiered(start)]
        found = ask_for_ends(self._inner, asked) if asked else []
        return {(one.topic, one.partition): one.offset for one in found if one.error is None and one.offset >= 0}

    def _reset_offset(self) -> int:
        if self._settings.reset is ResetPolicy.ERROR:
            return UNKNOWN
        return BEGINNING if self._settings.reset is ResetPolicy.EARLIEST else END

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

"""The remote half of a RemoteConsumer that is switched on: the session with the store, the feeds, the merge.

Rules of the file:

- It is opened after the parent's constructor, and closed after the parent's `close`.
- "The application's thread" in the modules below is the one that holds the gate. It may be the thread of `IdleStore`.
- It holds methods of the consumer and callbacks, and is garbage-collected together with the consumer.
- Closing takes a bounded time.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.caller_thread import CallerThread
from remote_fetch.consumer.arguments import are_partitions
from remote_fetch.consumer.assigned import key_of
from remote_fetch.consumer.callbacks import Callbacks
from remote_fetch.consumer.committed import CommittedOffsets, Start
from remote_fetch.consumer.feed_context import FeedContext
from remote_fetch.consumer.handover import pause_before_assign
from remote_fetch.consumer.idle_store import IdleStore
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.lookups import Lookups
from remote_fetch.consumer.merge import Merge
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.offsets import COMMITTED
from remote_fetch.consumer.partitions import Partitions
from remote_fetch.consumer.settings import ConsumerSettings, ResetPolicy
from remote_fetch.consumer.weak_callbacks import weakly, with_weak_callbacks
from remote_fetch.consumer.workers import Workers
from remote_fetch.deadline import Clock
from remote_fetch.observe import Event, Observer
from remote_fetch.session.circuit import Circuit
from remote_fetch.session.session import Session

__all__ = ["Gate", "Remote"]

_LOG = logging.getLogger("remote_fetch")
_CLOSE_S = 1.0
_SAVE_S = 10.0
"""How long `close` waits for a session that saves its timelines (`remote.locator.cache`)."""
_COMMITS_S = 1.0
"""How long `assign` waits for the commits of before."""

Callback = Callable[[Any, list[TopicPartition]], Any]


class Gate(Protocol):
    """Lets one caller at a time into a consumer, as `threading.RLock` does."""

    def acquire(self, blocking: bool = ...) -> bool:
        """Enter. If `blocking` is false and another caller is inside, return False."""

    def release(self) -> None:
        """Leave."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *_: Any) -> Any: ...


class Remote:
    """The parts of one consumer. `librdkafka` has the methods of the parent. Raises the errors of `Session.open`.

    - `gate` lets one caller at a time into the consumer. The caller may enter again from a callback.
    - `clock` has to be the monotonic clock, as in the session. Only tests pass another one.
    """

    def __init__(
        self,
        librdkafka: LibrdkafkaConsumer,
        settings: ConsumerSettings,
        metrics: Metrics,
        observer: Observer,
        gate: Gate,
        callbacks: Callbacks,
        clock: Clock = time.monotonic,
    ) -> None:
        self._observer, observer = observer, weakly(observer)

        def observe(event: Event) -> None:
            metrics(event)
            try:
                observer(event)
            except BaseException as error:  # its threads have to go on, and a panic in Rust is no Exception
                if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                    raise  # a signal has come
                _LOG.exception("an observer failed")

        self._librdkafka = librdkafka
        self._settings = settings
        self.gate = gate
        self.metrics = metrics
        self.session = Session.open(with_weak_callbacks(settings.remote), observe, shared=True)
        max_bytes = self.session.config.settings.max_bytes
        circuit = Circuit(first_pause_s=settings.retry_pause_s)
        context = FeedContext(self.session, settings.isolation, max_bytes, settings.queued_bytes, circuit, clock)
        self._workers = Workers()
        self._end_threads = weakref.finalize(self, self._workers.end)
        self._close_session = weakref.finalize(self, _close_in_thread, self.session)
        self._close_session.atexit = False  # the process ends, and no thread can be started
        self.committed = CommittedOffsets(self._fetch_starts, self._workers.notify)
        self._lookups = Lookups(context.partition)
        self.partitions = Partitions(librdkafka, settings, context, self._workers, self.committed)
        self.callbacks = callbacks
        self.merge = Merge(
            librdkafka, self.partitions, self._workers, settings, metrics.count_broker_records, clock, callbacks
        )
        self._idle_store = IdleStore(self._store_if_idle, settings.idle_store_s)
        self._is_closing = False
        self._is_closed = False
        self._application_assigned = False
        """Whether the application has called an assign method since the callback of a rebalance began."""

    def flush_positions(self) -> None:
        """Update positions, and store them for commits."""
        self.merge.flush_position()
        self.partitions.positions.store()

    def expect_revocation(self) -> None:
        """Prepare for a call after which librdkafka revokes partitions: no record comes before the callback."""
        self.flush_positions()
        self.merge.expect_callback()

    def _store_if_idle(self) -> None:
        """Store positions, if the application has made no call for a while. Any thread may call this."""
        if self.partitions.positions.were_stored_lately or not self.gate.acquire(blocking=False):
            return
        try:
            if not self._is_closing:
                self.flush_positions()
        finally:
            self.gate.release()

    # ------------------------------------------------------------------------------------------------- assignments

    def assign(self, partitions: list[TopicPartition], *, is_incremental: bool) -> None:
        """As `Consumer.assign` and `Consumer.incremental_assign`."""
        self._application_assigned = True
        assign = self._librdkafka.incremental_assign if is_incremental else self._librdkafka.assign
        if self._is_closing:  # no record is read any more, and the group may not answer
            assign(partitions)
            return
        if not is_incremental:
            self.partitions.positions.prepare_to_leave(None)
        self.flush_positions()
        self._idle_store.start()
        self._finish_commits(partitions, is_incremental=is_incremental)

        def change() -> None:
            is_refused = is_incremental and bool(self.partitions.tracked(partitions))
            starts = partitions if is_refused else pause_before_assign(self._librdkafka, partitions)
            self.partitions.expect(partitions)
            assign(starts)

        self._change(change)
        self._lookups.request({each.topic: each.partition for each in partitions if each.offset in COMMITTED})

    def unassign(self) -> None:
        """As `Consumer.unassign`."""
        self.partitions.positions.prepare_to_leave(None)
        self.flush_positions()
        self._application_assigned = True
        self._change(self._librdkafka.unassign)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """As `Consumer.incremental_unassign`."""
        if are_partitions(partitions):
            self.partitions.positions.prepare_to_leave(partitions)
        self.flush_positions()
        self._application_assigned = True
        self._change(partial(self._librdkafka.incremental_unassign, partitions))

    def _change(self, change: Callable[[], None]) -> None:
        """Call `change`, which changes librdkafka's assignment, and go on with the new assignment."""
        self.partitions.expect([])  # first: handlers of signals may end each step below
        try:
            change()
            self.partitions.follow()
        except BaseException as error:
            if isinstance(error, KafkaException):  # if a handler has raised, librdkafka has made the change
                self.partitions.expect([])
            self.partitions.settle()
            raise

    def _finish_commits(self, partitions: Sequence[TopicPartition], *, is_incremental: bool) -> None:
        """Have offsets committed before the group is asked for the committed offsets of these partitions.

        librdkafka commits what is stored when it unassigns partitions, and `assign` unassigns those of before. If its
        commits take longer, they are not noted as made.
        """
        begun = [partition for partition in partitions if partition.offset in COMMITTED]
        with contextlib.suppress(KafkaException):  # the assignment meets the same error, and raises it
            if not is_incremental and self.partitions.tracked(begun):
                self._change(self._librdkafka.unassign)
            if begun and self.partitions.is_committing:
                # A broker answers the requests of a connection in order. So after this answer the commits are made.
                named = [TopicPartition(*key_of(partition)) for partition in begun]
                self._librdkafka.committed(named, timeout=_COMMITS_S)
                self.partitions.note_committed()

    def _fetch_starts(self, partitions: Sequence[TopicPartition], timeout_s: float) -> Sequence[Start]:
        brokers, group, isolation = self.session.brokers, self._settings.names[1], self._settings.isolation
        if brokers is None or not group:
            return []
        committed = brokers.cluster.committed(group, partitions, isolation, timeout_s=timeout_s)
        starts = {
            (each.topic, each.partition): Start(each.topic, each.partition, each.offset)
            for each in committed
            if each.error is None
        }
        at_end = [TopicPartition(*key) for key, start in starts.items() if start.offset < 0]
        if at_end and self._settings.reset is ResetPolicy.LATEST:
            with contextlib.suppress(KafkaException):  # librdkafka looks the ends up when the application polls
                for end in brokers.cluster.ends_for_group(group, at_end, isolation, timeout_s=timeout_s):
                    if end.error is None and end.offset >= 0:
                        starts[end.topic, end.partition] = Start(end.topic, end.partition, end.offset, is_end=True)
        return list(starts.values())

    # -------------------------------------------------------------------------------------------------- rebalances

    def on_assign(self, consumer: Any, partitions: list[TopicPartition], callback: Callback | None) -> None:
        """Handle a rebalance that assigns partitions."""
        given = [TopicPartition(partition.topic, partition.partition, partition.offset) for partition in partitions]
        self._application_assigned = False
        try:
            if callback is not None:
                callback(consumer, partitions)
        finally:  # as in the parent: also if the callback raises
            if not (self._application_assigned or self._is_closed):
                self.assign(given, is_incremental=self._settings.is_cooperative)

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition], callback: Callback | None) -> None:
        """Handle a rebalance that revokes partitions, or the loss of partitions."""
        revoked = list(partitions)
        self.flush_positions()
        self.partitions.stop_feeds(revoked)  # the next owner gets a record that comes after a commit in the callback
        try:
            if callback is not None:
                callback(consumer, partitions)
        finally:
            self.partitions.positions.prepare_to_leave(revoked)
            self.flush_positions()
            self.partitions.drop(revoked)

    # ----------------------------------------------------------------------------------------------------- the rest

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As `Consumer.set_sasl_credentials`, for the clients of the session."""
        _call_within(_CLOSE_S, lambda: self.session.set_sasl_credentials(username, password))

    def puts_off_close(self) -> bool:
        """Whether a close has nothing to do now: another one runs, or it has to wait for a call that runs."""
        return self._is_closing or self.merge.puts_off_close()

    def begin_close(self) -> None:
        """Prepare for the parent's `close`: it may run callbacks, and moves positions past records that it drops."""
        self._is_closing = True
        self.committed.close()
        self._lookups.close()
        self.partitions.positions.prepare_to_leave(None)
        try:
            self.flush_positions()
        finally:
            self.partitions.positions.freeze()

    def close(self) -> None:
        """End the feeds and the session. If the fetcher's `close` raises, that error is raised at the end."""
        self._is_closed = True
        if sys.is_finalizing():  # the interpreter ends: no thread runs any more, and a new one would never begin
            return
        saves = self.session.config.settings.locator_cache is not None
        with contextlib.ExitStack() as rest:  # it calls the last one first
            rest.callback(_call_within, _SAVE_S if saves else _CLOSE_S, self.session.close)
            rest.callback(self._workers.close, _CLOSE_S)
            self._idle_store.close(_CLOSE_S)
            self.partitions.drop(None)
            self._end_threads.detach()
            self._close_session.detach()
            self.session.reader.close()


def _close_in_thread(session: Session) -> None:
    """Close the session of a consumer that was forgotten.

    The garbage collector calls this in any thread. So it waits for nothing, and takes no lock, as `threading` would.
    The close runs in a thread that `threading` knows: one that it does not know stays in `threading.enumerate` as a
    dummy, because the close asks for the current thread.
    """
    close = threading.Thread(target=session.close, name="remote-fetch-session", daemon=True)
    _thread.start_new_thread(close.start, ())


def _call_within(timeout_s: float, call: Callable[[], None]) -> None:
    """Make a call in a thread, and wait for it at most this long. Raises the errors of the call.

    The call may wait for another thread's request to a broker. It then goes on in its thread, and ends with that
    request. An error that comes so late is logged.
    """
    thread = CallerThread("remote-fetch-session")
    done = thread.submit(call)
    thread.end()
    if wait([done], timeout_s).done:
        done.result()
    else:
        done.add_done_callback(_log_error)


def _log_error(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        _LOG.error("a call of the session failed after its time", exc_info=error)

"""RemoteConsumer: a `confluent_kafka.Consumer` that reads tiered records from the store.

Rules of the file:

- Methods behave and raise like the parent's. Docstrings describe only the difference.
- If remote fetch is switched off, every method is the parent's.
- librdkafka keeps group membership, rebalances, commits and live data.
- The methods that use the remote half let in one thread at a time. A callback may enter again, as with the parent.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from remote_fetch.consumer.arguments import (
    after,
    are_partitions,
    integer,
    is_asynchronous,
    is_record,
    offsets_of_commit,
    seconds,
)
from remote_fetch.consumer.callbacks import Callbacks
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.metrics import Metrics, with_statistics
from remote_fetch.consumer.offsets import STORED, named_epoch, partition_at
from remote_fetch.consumer.remote import Gate, Remote
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.kafka_clients import Consumer as _Consumer
from remote_fetch.observe import Observer, ignore
from remote_fetch.prepare.arguments import check_observer

__all__ = ["RemoteConsumer"]

_MAX_CONSUME = 1_000_000
_ASYNCHRONOUS_COMMIT_S = 1.0
"""How long an asynchronous commit waits for the group's answer to an assignment. Mostly there is no such question."""
_NOT_GIVEN: Any = object()
_NUMBERS = (float, int)

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")


def _typed_as(_: F) -> Callable[[Callable[..., Any]], F]:
    """Give a method the type of the parent's method, so that code which is typed for the parent passes the check."""
    return lambda method: cast("F", method)


def _locked(method: Callable[Concatenate[RemoteConsumer, P], T]) -> Callable[Concatenate[RemoteConsumer, P], T]:
    """Let one caller at a time into the method, if there is a remote half."""

    @wraps(method)
    def locked(self: RemoteConsumer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        remote = self._remote
        if remote is None:
            return method(self, *args, **kwargs)
        with remote.gate:
            return method(self, *args, **kwargs)

    return locked


class RemoteConsumer(_Consumer):
    """`confluent_kafka.Consumer` that reads tiered records from the object store, not through the broker (KIP-1254).

    Takes the configuration of the parent and the keys of remote-fetch (docs/reference/configuration.md). With
    `fetch.remote.enabled=false`, the default, it is the parent in every way. With `true`:

    - A partition whose position lies in the tier is read from the store.
    - librdkafka takes over exactly where the tier ends, or where the tier does not tell how a transaction ends.
    - If the store fails, librdkafka reads on at once, and the store is tried again later.

    Messages are `confluent_kafka.Message`s, equal to the broker's field for field. `observer` is called with every GET,
    retry and fallback, from several threads.

    Raises ConfigError for a wrong key of remote-fetch, KafkaException and ValueError as the parent does.
    """

    _remote: Remote | None = None
    _gate: Callable[[], Gate] = threading.RLock
    _callbacks_at_close: Callbacks | None = None

    def __init__(self, *args: Any, observer: Observer = ignore, **kwargs: Any) -> None:
        given = args or ({},) if kwargs else args
        if len(given) != 1 or not isinstance(given[0], dict):
            super().__init__(*args, **kwargs) if kwargs else super().__init__(*args)  # raises as the parent does
            return
        settings = ConsumerSettings.parse({**given[0], **kwargs})
        self._metrics = metrics = Metrics(*settings.names)
        if not settings.is_enabled:
            settings.log_ignored_keys()
            super().__init__(dict(settings.librdkafka))
        else:
            check_observer(observer)
            callbacks = Callbacks()
            super().__init__(callbacks.guard_all(with_statistics(settings.librdkafka, metrics)))
            self._settings = settings
            librdkafka, gate = cast("LibrdkafkaConsumer", super()), type(self)._gate()
            try:
                self._remote = Remote(librdkafka, settings, metrics, observer, gate, callbacks)
            except BaseException:
                super().close()
                raise

    def _raise_kept(self) -> None:
        """Raise the error that a close at the end of `poll` or `consume` has left to the next call."""
        if self._callbacks_at_close is not None:
            self._callbacks_at_close.raise_kept()

    # ------------------------------------------------------------------------------------------------- records

    def poll(self, timeout: float = -1) -> Message | None:
        """As the parent's: the next message, None after `timeout` (seconds; -1: for ever). Raises as the parent's."""
        remote = self._remote
        if remote is None:
            self._raise_kept()
            return _Consumer.poll(self, timeout)  # by name: `super()` would take half of this method's time
        if type(timeout) not in _NUMBERS:
            timeout = seconds(timeout)
        if (prepared := remote.merge.next_in_block()) is not None:
            return prepared
        message = None
        try:
            with remote.gate:
                try:
                    message = remote.merge.poll(timeout)
                finally:
                    if remote.merge.is_close_due:
                        self.close()
        except BaseException as error:
            if message is None:
                raise
            remote.callbacks.keep(error)  # the application gets the message first, as that of `consume`
        return message

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As the parent's: waits for `num_messages` messages, at most `timeout` (seconds; -1: for ever)."""
        remote = self._remote
        if remote is None or not 0 < (count := integer(num_messages)) <= _MAX_CONSUME:
            self._raise_kept()
            return super().consume(num_messages, timeout)
        timeout = seconds(timeout)
        messages: list[Message] = []
        try:
            with remote.gate:
                try:
                    messages = remote.merge.consume(count, timeout)
                finally:
                    if remote.merge.is_close_due:
                        self.close()
        except BaseException as error:
            if not messages:
                raise
            remote.callbacks.keep(error)
        return messages

    # ------------------------------------------------------------------------------------------- what is assigned

    @_locked
    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., Any] | None = _NOT_GIVEN,
        on_revoke: Callable[..., Any] | None = _NOT_GIVEN,
        on_lost: Callable[..., Any] | None = _NOT_GIVEN,
    ) -> None:
        """As the parent's. The callbacks get this consumer. Like the parent's, it refuses None for a callback."""
        named = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        given = {name: callback for name, callback in named.items() if callback is not _NOT_GIVEN}
        remote = self._remote
        if remote is None or not all(map(callable, given.values())):
            super().subscribe(topics, **given)
            return
        revoked = given.get("on_revoke")
        remote.expect_revocation()
        guard = remote.callbacks.guard
        super().subscribe(
            topics,
            on_assign=guard(partial(_call, remote.on_assign, given.get("on_assign"))),
            on_revoke=guard(partial(_call, remote.on_revoke, revoked)),
            on_lost=guard(partial(_call, remote.on_revoke, given.get("on_lost", revoked))),
        )

    @_locked
    def unsubscribe(self) -> None:
        """As the parent's."""
        if self._remote is not None:
            self._remote.expect_revocation()
        super().unsubscribe()

    @_locked
    def assign(self, partitions: list[TopicPartition], /) -> None:
        """As the parent's."""
        if self._remote is None or not are_partitions(partitions):
            super().assign(partitions)
        else:
            self._remote.assign(partitions, is_incremental=False)

    @_locked
    def incremental_assign(self, partitions: list[TopicPartition], /) -> None:
        """As the parent's."""
        if self._remote is None or not are_partitions(partitions):
            super().incremental_assign(partitions)
        else:
            self._remote.assign(partitions, is_incremental=True)

    @_locked
    def unassign(self) -> None:
        """As the parent's."""
        if self._remote is None:
            super().unassign()
        else:
            self._remote.unassign()

    @_locked
    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None:
        """As the parent's."""
        if self._remote is None:
            super().incremental_unassign(partitions)
        else:
            self._remote.incremental_unassign(partitions)

    @_locked
    def assignment(self) -> list[TopicPartition]:
        """As the parent's, with the offsets, leader epochs and metadata that were assigned."""
        found = super().assignment()
        if self._remote is None:
            return found
        known = zip(found, self._remote.partitions.lookup(found), strict=True)
        return [answer if assigned is None else assigned.assignment for answer, assigned in known]

    @_locked
    def pause(self, partitions: list[TopicPartition]) -> None:
        """As the parent's."""
        remote = self._remote
        if remote is None or not are_partitions(partitions):
            super().pause(partitions)
            return
        remote.merge.flush_position()
        remote.partitions.pause(remote.partitions.tracked(partitions))
        untracked = remote.partitions.untracked(partitions)
        super().pause(untracked)
        remote.partitions.pause_untracked(untracked)

    @_locked
    def resume(self, partitions: list[TopicPartition]) -> None:
        """As the parent's."""
        remote = self._remote
        if remote is None or not are_partitions(partitions):
            super().resume(partitions)
            return
        remote.partitions.resume(remote.partitions.tracked(partitions))
        untracked = remote.partitions.untracked(partitions)
        super().resume(untracked)
        remote.partitions.resume_untracked(untracked)

    # ------------------------------------------------------------------------------------------------- positions

    @_locked
    def seek(self, partition: TopicPartition) -> None:
        """As the parent's."""
        remote = self._remote
        if remote is not None and type(partition) is TopicPartition and partition.offset != STORED:
            for assigned in remote.partitions.tracked([partition]):
                remote.flush_positions()
                remote.partitions.seek(assigned, partition.offset, named_epoch(partition))
                return
        super().seek(partition)

    @_locked
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """As the parent's, with the metadata of the argument."""
        found = super().position(partitions)
        remote = self._remote
        if remote is not None:
            remote.merge.flush_position()
            for at, (answer, assigned) in enumerate(zip(found, remote.partitions.lookup(found), strict=True)):
                if assigned is not None and not (assigned.follows_librdkafka and answer.offset >= 0):
                    shown = assigned.position.shown
                    found[at] = partition_at(*assigned.key, shown.offset, shown.leader_epoch, answer.metadata)
        return found

    @_typed_as(_Consumer.get_watermark_offsets)
    @_locked
    def get_watermark_offsets(self, partition: TopicPartition, timeout: float = -1, cached: bool = False) -> Any:
        """As the parent's. With `cached` it also knows partitions that are read from the store."""
        found: tuple[int, int] | None = super().get_watermark_offsets(partition, timeout=timeout, cached=cached)
        if self._remote is not None and cached and (found is None or found[1] < 0):
            for assigned in self._remote.partitions.tracked([partition]):
                return assigned.log_start, assigned.log_end
        return found

    @_locked
    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """As the parent's: an error unless `enable.auto.offset.store` is false."""
        is_refused = self._remote is not None and self._settings.stores_offsets
        if is_refused and (is_record(message) if offsets is None else message is None and are_partitions(offsets)):
            # The parent would accept them, because it is configured not to store offsets itself.
            text = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
        super().store_offsets(message, offsets)
        if self._remote is not None:
            self._remote.partitions.positions.note_stored(offsets if message is None else [after(message)])  # type: ignore[arg-type]

    @_typed_as(_Consumer.commit)
    @_locked
    def commit(self, *args: Any, **kwargs: Any) -> Any:
        """As the parent's."""
        if self._remote is not None:
            self._remote.flush_positions()
            # A running assignment must not get the offsets of this commit.
            if is_asynchronous(*args, **kwargs):
                self._remote.committed.wait(_ASYNCHRONOUS_COMMIT_S)
                self._remote.partitions.note_commit()
            else:
                self._remote.committed.wait()
        answer = super().commit(*args, **kwargs)
        if self._remote is not None:
            self._remote.partitions.positions.note_own_commits(offsets_of_commit(*args, **kwargs))
        return answer

    @_locked
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As the parent's, for all connections to brokers."""
        super().set_sasl_credentials(username, password)
        if self._remote is not None:
            self._remote.set_sasl_credentials(username, password)

    def remote_metrics(self) -> dict[str, Any]:
        """The metrics of KIP-1254, those of each partition under `partitions`. All are 0 if the class is switched off.

        - `remote-fetch-{requests,bytes,errors,fallbacks}-{rate,total}`: per second over half a minute, and since the
          start. Errors and fallbacks are also counted by their reason.
        - `remote-fetch-latency-{avg,max}`: milliseconds for a GET.
        - `remote-metadata-{orphan-updates,malformed-records}-total`: metadata records that locate no segment.
        - `broker-records-total` and `broker-bytes-total` (bytes of values): records through the broker.
        - `client-id` and `group` are text.

        A partition without an event for a day is left out. Waits for nothing. May be called from any thread.
        """
        return self._metrics.snapshot()

    # ----------------------------------------------------------------------------------------------------- the end

    @_locked
    def close(self) -> None:
        """As the parent's. It takes up to two seconds more, to end the remote half.

        In a callback or a handler of a signal it returns at once. The consumer is closed as soon as the `poll` or
        `consume` that runs has returned, within about a second.
        """
        remote = self._remote
        if remote is None:
            self._raise_kept()
            super().close()
            return
        is_late, callbacks = remote.merge.is_close_due, remote.callbacks
        if remote.puts_off_close():
            return
        try:
            try:
                remote.begin_close()
            finally:
                super().close()  # calls on_revoke, which still needs the remote half
        finally:
            self._remote, self._callbacks_at_close = None, callbacks
            remote.close()
        callbacks.log_kept() if is_late else callbacks.raise_kept()  # `poll` and `consume` may have records to return

    def _enter_child(self) -> None:
        """Become a plain `Consumer`, which gives no records in a forked child. The remote half is kept, and not called.

        Its threads run only in the parent process, and one of them may have held its locks.
        """
        super()._enter_child()
        if (remote := self._remote) is not None:  # None also in the child of a child
            self._inherited, self._remote = remote, None
            if remote.merge.suspends_collector:
                gc.enable()  # the thread whose `consume` would do so runs only in the parent process
        if hasattr(self, "_metrics"):  # not if another thread was in the constructor
            self._metrics = self._metrics.without_counts()

    def __exit__(self, exc_type: Any, exc_value: Any, exc_traceback: Any) -> None:
        self.close()


def _call(handler: Callable[..., None], callback: Any, consumer: Any, partitions: list[TopicPartition]) -> None:
    handler(consumer, partitions, callback)

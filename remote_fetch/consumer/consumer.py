"""RemoteConsumer: change one class name, and what lies in the tier is read from the store.

Rules of the file: a method does what the parent's does, in the parent's words, and no more is said here than how the
remote half takes part in it; switched off, every method is the parent's. Group membership, rebalances, commits and live
data stay librdkafka's. As with the parent, a thread that comes while another is inside waits for it, and one that comes
again from a callback does not: what the remote half takes part in is behind its gate.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.cimpl import Consumer as _Consumer

from remote_fetch.consumer.forks import Forks
from remote_fetch.consumer.inner import Inner
from remote_fetch.consumer.metrics import Metrics, into_statistics
from remote_fetch.consumer.remote import Remote
from remote_fetch.consumer.settings import ENABLED, ConsumerSettings
from remote_fetch.consumer.states import STORED
from remote_fetch.observe import Observer, ignore

__all__ = ["RemoteConsumer"]

_MAX_CONSUME = 1_000_000
_NOT_GIVEN: Any = object()
_FORKS = Forks()
_LOG = logging.getLogger("remote_fetch")

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F")


def _typed_as(_: F) -> Callable[[Callable[..., Any]], F]:
    """The method, with the type of the parent's for a type checker: what was written for the parent passes."""
    return lambda method: cast("F", method)


def _alone(method: Callable[Concatenate[RemoteConsumer, P], T]) -> Callable[Concatenate[RemoteConsumer, P], T]:
    """Let one caller at a time into the method, where there is a remote half."""

    @wraps(method)
    def alone(self: RemoteConsumer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        remote = self._remote
        if remote is None:
            return method(self, *args, **kwargs)
        with remote.gate:
            return method(self, *args, **kwargs)

    return alone


class RemoteConsumer(_Consumer):
    """`confluent_kafka.Consumer` with one more way to the records: out of the object store, past the broker (KIP-1254).

    Takes the configuration of the parent and the keys of remote-fetch (docs/reference/configuration.md). With
    `fetch.remote.enabled=false`, the default, it is the parent in every way. With `true`, partitions whose position
    lies in the tier are read from the store and handed over to librdkafka exactly where the tier, or what is decided
    there, ends; when the store fails, librdkafka reads on at once, and the store is tried again later.

    Messages are `confluent_kafka.Message`s, equal to the broker's field for field. `observer` hears of every GET, retry
    and fallback, from several threads.

    Raises ConfigError for a key of remote-fetch that is wrong, KafkaException and ValueError as the parent does.
    """

    _remote: Remote | None = None
    _gate: Callable[[], AbstractContextManager[Any]] = threading.RLock

    def __init__(self, *args: Any, observer: Observer = ignore, **kwargs: Any) -> None:
        given = args or ({},) if kwargs else args
        if len(given) != 1 or not isinstance(given[0], dict):
            super().__init__(*args, **kwargs) if kwargs else super().__init__(*args)  # raises in its own words
            return
        settings = ConsumerSettings.of({**given[0], **kwargs})
        self._metrics = metrics = Metrics(*settings.names)
        if not settings.is_enabled:
            _tell_of_ignored(settings)
        super().__init__(_counted(settings.librdkafka, metrics) if settings.is_enabled else dict(settings.librdkafka))
        if settings.is_enabled:
            self._settings = settings
            try:
                self._remote = Remote(cast("Inner", super()), settings, metrics, observer, type(self)._gate())
            except BaseException:
                super().close()
                raise
            _FORKS.follow(self)

    # ------------------------------------------------------------------------------------------------- records

    def poll(self, timeout: float = -1) -> Message | None:
        """As the parent's. Seconds; -1: for ever."""
        remote = self._remote
        if remote is None:
            return _Consumer.poll(self, timeout)  # by name, for super() would be half of what this method costs
        if (ready := remote.merge.next_in_block()) is not None:
            return ready
        with remote.gate:
            return remote.merge.poll(timeout)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """As the parent's: waits the whole timeout (seconds; -1: for ever) unless it gets as many as it may."""
        remote = self._remote
        if remote is None or not 0 < (count := _number(num_messages)) <= _MAX_CONSUME:
            return super().consume(num_messages, timeout)
        with remote.gate:
            return remote.merge.consume(count, timeout)

    # ------------------------------------------------------------------------------------------- what is assigned

    @_alone
    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., Any] | None = _NOT_GIVEN,
        on_revoke: Callable[..., Any] | None = _NOT_GIVEN,
        on_lost: Callable[..., Any] | None = _NOT_GIVEN,
    ) -> None:
        """As the parent's; its callbacks get this consumer. Like the parent, it refuses None for a callback."""
        named = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        given = {name: callback for name, callback in named.items() if callback is not _NOT_GIVEN}
        remote = self._remote
        if remote is None or not all(map(callable, given.values())):
            super().subscribe(topics, **given)
            return
        revoked = given.get("on_revoke")
        super().subscribe(
            topics,
            on_assign=partial(_call, remote.on_assign, given.get("on_assign")),
            on_revoke=partial(_call, remote.on_revoke, revoked),
            on_lost=partial(_call, remote.on_revoke, given.get("on_lost", revoked)),
        )

    @_alone
    def unsubscribe(self) -> None:
        """As the parent's."""
        if self._remote is not None:
            self._remote.settle()
        super().unsubscribe()

    @_alone
    def assign(self, partitions: list[TopicPartition], /) -> None:
        """As the parent's."""
        if self._remote is None or not _are_partitions(partitions):
            super().assign(partitions)
        else:
            self._remote.assign(partitions, is_incremental=False)

    @_alone
    def incremental_assign(self, partitions: list[TopicPartition], /) -> None:
        """As the parent's."""
        if self._remote is None or not _are_partitions(partitions):
            super().incremental_assign(partitions)
        else:
            self._remote.assign(partitions, is_incremental=True)

    @_alone
    def unassign(self) -> None:
        """As the parent's."""
        if self._remote is None:
            super().unassign()
            return
        self._remote.settle()
        self._remote.was_assigned = True
        super().unassign()
        self._remote.partitions.drop(None)

    @_alone
    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None:
        """As the parent's."""
        if self._remote is None:
            super().incremental_unassign(partitions)
            return
        self._remote.settle()
        self._remote.was_assigned = True
        super().incremental_unassign(partitions)
        self._remote.partitions.drop(partitions)

    @_alone
    def assignment(self) -> list[TopicPartition]:
        """As the parent's, with the offsets that were assigned."""
        found = super().assignment()
        if self._remote is not None:
            for one, entry in zip(found, self._remote.partitions.like(found), strict=True):
                one.offset = one.offset if entry is None else entry.assigned_offset
        return found

    @_alone
    def pause(self, partitions: list[TopicPartition]) -> None:
        """As the parent's."""
        remote = self._remote
        if remote is None or not _are_partitions(partitions):
            super().pause(partitions)
            return
        remote.merge.settle()
        remote.partitions.pause(remote.partitions.of(partitions))
        absent = remote.partitions.others(partitions)
        super().pause(absent)
        remote.partitions.pause_absent(absent)

    @_alone
    def resume(self, partitions: list[TopicPartition]) -> None:
        """As the parent's."""
        remote = self._remote
        if remote is None or not _are_partitions(partitions):
            super().resume(partitions)
            return
        remote.partitions.resume(remote.partitions.of(partitions))
        absent = remote.partitions.others(partitions)
        super().resume(absent)
        remote.partitions.resume_absent(absent)

    # ------------------------------------------------------------------------------------------------- positions

    @_alone
    def seek(self, partition: TopicPartition) -> None:
        """As the parent's."""
        remote = self._remote
        if remote is not None and type(partition) is TopicPartition and partition.offset != STORED:
            for entry in remote.partitions.of([partition]):
                remote.settle()
                remote.partitions.seek(entry, partition.offset)
                return
        super().seek(partition)

    @_alone
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """As the parent's."""
        found = super().position(partitions)
        remote = self._remote
        if remote is not None:
            remote.merge.settle()
            for one, entry in zip(found, remote.partitions.like(found), strict=True):
                if entry is not None and (not entry.state.is_fetched or one.offset < 0):
                    one.offset = entry.given_up_to
                elif entry is not None and entry.held is not None:
                    one.offset = min(one.offset, entry.held)
        return found

    @_typed_as(_Consumer.get_watermark_offsets)
    @_alone
    def get_watermark_offsets(self, partition: TopicPartition, timeout: float = -1, cached: bool = False) -> Any:
        """As the parent's; `cached` knows of what is read from the store too."""
        found: tuple[int, int] | None = super().get_watermark_offsets(partition, timeout=timeout, cached=cached)
        if self._remote is not None and cached and (found is None or found[1] < 0):
            for entry in self._remote.partitions.of([partition]):
                return entry.log_start, entry.end_offset
        return found

    @_alone
    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """As the parent's: an error unless `enable.auto.offset.store` is false."""
        is_theirs = self._remote is not None and self._settings.stores_offsets
        if is_theirs and (_is_record(message) if offsets is None else message is None and _are_partitions(offsets)):
            # The parent would take it, for it was told that we store.
            text = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
        super().store_offsets(message, offsets)

    @_typed_as(_Consumer.commit)
    @_alone
    def commit(self, *args: Any, **kwargs: Any) -> Any:
        """As the parent's."""
        if self._remote is not None:
            self._remote.settle()
            if kwargs.get("asynchronous", True) is False:
                self._remote.committed.wait()  # an assignment goes on from what was committed before
        return super().commit(*args, **kwargs)

    @_alone
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As the parent's, for all connections to brokers."""
        super().set_sasl_credentials(username, password)
        if self._remote is not None:
            self._remote.set_sasl_credentials(username, password)

    def remote_metrics(self) -> dict[str, Any]:
        """KIP-1254's metrics: see `remote_fetch.consumer.metrics.Metrics.snapshot`. All 0 while switched off."""
        return self._metrics.snapshot()

    # ----------------------------------------------------------------------------------------------------- the end

    @_alone
    def close(self) -> None:
        """As the parent's; the store's side ends within a second more."""
        remote = self._remote
        if remote is None:
            super().close()
            return
        remote.settle()
        remote.is_closing = True
        remote.committed.close()
        remote.partitions.is_held = True  # what it throws away moves its positions as if it had been given
        try:
            super().close()  # calls back on_revoke, which still needs the remote half
        finally:
            self._remote = None
            remote.close()

    def __exit__(self, exc_type: Any, exc_value: Any, exc_traceback: Any) -> None:
        self.close()


def _counted(properties: Mapping[str, Any], metrics: Metrics) -> dict[str, Any]:
    """The properties with a `stats_cb` that tells of the remote half too."""
    tell = properties.get("stats_cb")
    if not callable(tell):
        return dict(properties)
    return {**properties, "stats_cb": lambda statistics: tell(into_statistics(statistics, metrics.snapshot()))}


def _tell_of_ignored(settings: ConsumerSettings) -> None:
    """Say once that keys of ours do nothing, for the switch is off: at INFO if it was given, else it was forgotten."""
    idle = sorted(settings.remote.ours().keys() - {ENABLED})
    if idle:
        level = logging.INFO if ENABLED in settings.remote.given else logging.WARNING
        names = ", ".join(idle)
        _LOG.log(
            level, "%s is not true: all records come from the brokers, and nothing is done with %s", ENABLED, names
        )


def _call(handler: Callable[..., None], callback: Any, consumer: Any, partitions: list[TopicPartition]) -> None:
    handler(consumer, partitions, callback)


def _number(given: object) -> int:
    """The integer that the parent would take it for, 0 where it would refuse it."""
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        return 0


def _is_record(message: object) -> bool:
    return type(message) is Message and message.error() is None


def _are_partitions(partitions: object) -> bool:
    """Whether the parent would take the argument; if not, it says so itself."""
    return isinstance(partitions, list) and all(type(one) is TopicPartition for one in partitions)

"""A member of a consumer group, of any kind, in its own thread. It writes down its records and its actions.

Rules of the file:

- Only the member's thread calls its consumer. Other threads send it orders.
- The kinds of consumers differ only in their constructor.
- An unexpected error ends the member, and is raised in the thread that waits for it.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from remote_fetch import RemoteConsumer
from remote_fetch.observe import Notice
from tests.rig.group_checker import Assigned, Committed, Delivered, Event, Paused, Resumed, Revoked, Sought
from tests.rig.topics import QUIET
from tests.rig.workload_oracle import Place

__all__ = ["KINDS", "PROTOCOLS", "LostItsBrokers", "Member", "Setting", "StaysInside", "Style"]

KINDS = ("on", "off", "plain")
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200, "session.timeout.ms": 6000},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6000,
    },
    "consumer": {"group.protocol": "consumer"},
}
"""librdkafka's settings of the group protocol. The last is that of KIP-848."""

_TIMEOUT_S = 150
_SHORT_S = 0.05
_COMMIT_EVERY = 40
_NOTHING_TO_DO = (KafkaError._NO_OFFSET, KafkaError._STATE)
_REBALANCE = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._WAIT_COORD,
)
"""Errors that a commit may get during a rebalance."""
_PASSING = (KafkaError._MAX_POLL_EXCEEDED, KafkaError.UNKNOWN)
"""Errors after which a member reads on. It was silent for too long, or a broker that has just started cannot read its
tier yet. The broker reports that as an unknown error."""
_NOBODY_THERE = (
    KafkaError._DESTROY,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""Errors that a member may get while the broker is restarted, or while the consumer is closed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings that the members of a group share. `tier` is the directory of the broker's tier."""

    bootstrap: str
    tier: str
    group: str
    protocol: str
    isolation: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Style:
    """How a member reads: its class, who commits, by which method it gets records, whether its callback assigns."""

    kind: str
    commits_itself: bool
    consumes: bool
    assigns: bool
    when: str = "not-local"

    @classmethod
    def draw(cls, dice: random.Random, kind: str) -> Style:
        """Any style of a kind."""
        commits_itself, consumes, assigns = (dice.random() < 0.5 for _ in range(3))
        return cls(kind, commits_itself, consumes, assigns, dice.choice(("not-local", "always")))

    def consumer(self, setting: Setting, say: Callable[[str], None], **more: Any) -> Consumer:
        """A consumer of this style. Its messages go to `say`."""

        def observe(event: object) -> None:
            if isinstance(event, Notice):
                say(event.text)

        config = {
            "bootstrap.servers": setting.bootstrap,
            "group.id": setting.group,
            "isolation.level": setting.isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": not self.commits_itself,
            "auto.commit.interval.ms": 100,
            "fetch.wait.max.ms": 100,
            **PROTOCOLS[setting.protocol],
            **QUIET,
            **more,
        }
        if self.kind == "plain":
            return Consumer(config)
        remote = {"remote.storage.url": setting.tier, "fetch.remote.when": self.when}
        return RemoteConsumer({**config, **remote, "fetch.remote.enabled": self.kind == "on"}, observer=observe)


class StaysInside(TimeoutError):
    """The `close` of a consumer does not return. librdkafka may wait for ever if a rebalance has begun."""


class LostItsBrokers(AssertionError):
    """librdkafka 2.16 has lost its brokers: a broker that shuts down may answer with an empty list of brokers."""


class Member(threading.Thread):
    """One member. Its events go into `events`, and its messages to `say`."""

    def __init__(
        self, name: str, setting: Setting, style: Style, events: list[Event], say: Callable[[str], None], **more: Any
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.style = style
        self.error: BaseException | None = None
        self.delivered = 0
        self.from_broker = 0
        self._setting = setting
        self._events = events
        self._orders: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._held: set[Place] = set()
        self._paused: set[Place] = set()
        self._last: Message | None = None
        self._uncommitted = 0
        self._ends = self._is_closing = False
        self._consumer = style.consumer(setting, lambda text: say(f"  {name}: {text}"), **more)

    # ------------------------------------------------------------------------------------------ for other threads

    def order(self, method: Callable[..., object], *arguments: Any) -> None:
        """Let the member call `method` between two calls for records."""
        self._orders.put(lambda: method(*arguments))

    def tell_to_end(self) -> None:
        """Have the consumer closed."""
        self.order(self._end)

    def end(self) -> None:
        """Have the consumer closed, and wait for it. Raises what the member raised."""
        self.tell_to_end()
        self.join(2 * _TIMEOUT_S)  # its own waits take half of that
        self.check()
        if self.is_alive():
            frame = sys._current_frames()[self.ident or 0]
            is_inside = frame.f_code.co_qualname in ("RemoteConsumer.close", "Member.run")
            said = f"{self.name} does not end; it is here:\n{''.join(traceback.format_stack(frame))}"
            if (remote := getattr(self._consumer, "_remote", None)) is not None:
                remote.close()  # the remote half ends also without the parent's `close`
            raise StaysInside(said) if is_inside else TimeoutError(said)

    def check(self) -> None:
        """Raise what the member raised."""
        if self.error is not None:
            raise AssertionError(f"{self.name}, {self.style}") from self.error

    def check_brokers(self) -> None:
        """Raise LostItsBrokers if the consumer gets no answer from the brokers. Call it only while the broker runs."""
        try:
            self._consumer.list_topics(timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise LostItsBrokers(f"{self.name}: {error}") from error

    # ------------------------------------------------------------------------------------------------- its thread

    def run(self) -> None:
        """Read until told to end."""
        try:
            try:
                self.subscribe(self._setting.topics)
                while not self._ends:
                    with suppress(queue.Empty):
                        self._orders.get_nowait()()
                    self._read()
            finally:
                if isinstance(self._consumer, RemoteConsumer):
                    counted = self._consumer.remote_metrics()["broker-records-total"]
                    self.from_broker = counted if self.style.kind == "on" else self.delivered
                if self.style.kind != "on":
                    # confluent_kafka 2.16 commits some records that it has fetched and that its `close` drops.
                    self._consumer.pause(self._consumer.assignment())
                self._is_closing = True
                self._consumer.close()
                self._on_lost(self._consumer, [TopicPartition(*place) for place in self._held])
        except BaseException as error:  # `check` and `end` raise it
            self.error = error

    def _read(self) -> None:
        if self.style.consumes:
            messages = self._consumer.consume(50, _SHORT_S)
        else:
            message = self._consumer.poll(_SHORT_S)
            messages = [] if message is None else [message]
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() in _PASSING:
                    continue
                raise KafkaException(error)
            place, offset = (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
            self._say(Delivered(time.monotonic_ns(), self.name, place, offset))
            self._last = message
        self.delivered += len(messages)
        self._uncommitted += len(messages)
        if self.style.commits_itself and self._uncommitted >= _COMMIT_EVERY:
            self.commit()

    def _say(self, event: Event) -> None:
        self._events.append(event)

    def _end(self) -> None:
        self._ends = True

    # ------------------------------------------------------------------------------------------------ its orders

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to these topics."""
        self._consumer.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def resubscribe(self) -> None:
        """Leave the group, and join it again."""
        self._consumer.unsubscribe()
        self.subscribe(self._setting.topics)

    def seek(self, dice: random.Random) -> None:
        """Seek any readable offset of a partition."""
        place = self._any(dice)
        if place is None:
            return
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=_TIMEOUT_S)
        (position,) = self._consumer.position([TopicPartition(*place)])
        forwards = dice.random() < 0.15
        stop = position.offset if position.offset >= low and not forwards else high
        offset = low + int(dice.random() * (stop - low))
        with suppress(KafkaException):  # it may be too early to seek
            self._consumer.seek(TopicPartition(*place, offset))
            self._last = None
            self._say(Sought(time.monotonic_ns(), self.name, place, offset))

    def pause(self, dice: random.Random) -> None:
        """Pause a partition."""
        place = self._any(dice)
        if place is not None:
            self._consumer.pause([TopicPartition(*place)])
            self._paused.add(place)
            self._say(Paused(time.monotonic_ns(), self.name, place))

    def resume(self) -> None:
        """Resume the paused partitions that are assigned."""
        places = self._paused & self._held
        self._paused -= places
        for place in places:
            self._say(Resumed(time.monotonic_ns(), self.name, place))
        self._consumer.resume([TopicPartition(*place) for place in places])

    def commit(self, dice: random.Random | None = None) -> None:
        """Commit the stored offsets, or the last record, and wait for the answer."""
        self._uncommitted = 0
        last = self._last
        is_held = last is not None and (last.topic(), last.partition()) in self._held
        by_message = is_held and dice is not None and dice.random() < 0.3
        try:
            found = self._consumer.commit(**({"message": last} if by_message else {}), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in (*_NOTHING_TO_DO, *_REBALANCE, *_NOBODY_THERE):
                raise
            return
        for one in found:
            if one.error is None and one.offset >= 0:
                place = (one.topic, one.partition)
                self._say(Committed(time.monotonic_ns(), self.name, place, one.offset, by_message))

    def _any(self, dice: random.Random) -> Place | None:
        return dice.choice(sorted(self._held)) if self._held else None

    # -------------------------------------------------------------------------------------------------- callbacks

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        assert consumer is self._consumer
        if self._is_closing:  # it gets no more records, and the group may not answer
            return
        for one in consumer.committed(partitions, timeout=_TIMEOUT_S) if partitions else ():
            place = (one.topic, one.partition)
            self._held.add(place)
            self._say(Assigned(time.monotonic_ns(), self.name, place, max(one.offset, 0)))
        if self.style.assigns:
            assign = consumer.assign if self._setting.protocol == "eager" else consumer.incremental_assign
            assign(partitions)

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if self.style.commits_itself:
            self.commit()
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._last = None
        for one in partitions:
            self._held.discard((one.topic, one.partition))
            self._say(Revoked(time.monotonic_ns(), self.name, (one.topic, one.partition)))

"""Merges the records of the store with those of librdkafka, in `poll` and in `consume`.

Rules of the file: only the application's thread comes here. Records of librdkafka are never held back, for its position
has passed them; records of the store are taken last, so that no callback comes between taking and delivering them. No
wait is longer than the application asked for.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from confluent_kafka import KafkaError, Message

from remote_fetch.consumer.entries import Entry
from remote_fetch.consumer.inner import Inner
from remote_fetch.consumer.partitions import Partitions
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.consumer.states import Mode
from remote_fetch.consumer.workers import Workers

__all__ = ["Merge"]

_TIDY_S = 0.05
"""How often, while records of the store are polled, librdkafka is asked for its own and for its callbacks."""
_STORE_S = 0.1
"""How often positions are stored for librdkafka's auto-commit."""
_SLICE_S = 0.01
"""How long to wait at a time while both sides may have news; librdkafka cannot ring our bell."""
_LONGEST_S = 1.0
_BLOCK_RECORDS = 256
_MANY_RECORDS = 1_000
"""From here on Python's garbage collector rests while messages are made: it would walk the new ones again and again,
none of which can go yet, and that took a third of the application thread's time."""
_RESET = KafkaError._AUTO_OFFSET_RESET


class Merge:
    """One stream of messages out of two. `count` is told of librdkafka's: how many, and the bytes of their values."""

    def __init__(
        self,
        inner: Inner,
        partitions: Partitions,
        workers: Workers,
        reset: ResetPolicy,
        count: Callable[[int, int], None],
    ) -> None:
        self._inner = inner
        self._partitions = partitions
        self._workers = workers
        self._reset = reset
        self._count = count
        self._block: deque[Message] = deque()
        self._taken: list[Message] = []
        self._taken_of: Entry | None = None
        self._tidy_at_s = 0.0
        self._store_at_s = 0.0
        self._live_came = False
        self._is_behind = False
        self._turn = 0
        self._error: Exception | None = None

    def next_in_block(self) -> Message | None:
        """The next of the records that were made ready for `poll`, if there is one and nothing else is to be done.

        Any thread may come here at any time, for a lock would take longer than all the rest: it takes from the left,
        and whoever wants the records back takes them from the right.
        """
        if self._block and time.monotonic() < self._tidy_at_s:
            try:
                return self._block.popleft()
            except IndexError:
                pass  # another thread was faster
        return None

    def poll(self, timeout_s: float) -> Message | None:
        """As `Consumer.poll`."""
        if (ready := self.next_in_block()) is not None:
            return ready
        self._raise_held()
        deadline_s = _deadline(timeout_s)
        while True:
            self.settle()
            now_s = self._tidy()
            if self._live_came:  # they take turns while both have records
                self._live_came = False
                if (record := self._first_of_block(1, 0.0)) is not None:
                    return record
            is_ready = self._next_ready() is not None
            waits = not (is_ready or self._is_reading())
            message = self._inner.poll(min(max(deadline_s - now_s, 0.0), _LONGEST_S) if waits else 0.0)
            if message is not None:
                if not self._is_reset(message):
                    self._live_came = self._is_behind = True
                    return self._counted(message)
                continue
            self._partitions.was_silent(now_s)
            if (record := self._first_of_block(_BLOCK_RECORDS, now_s + _TIDY_S)) is not None:
                return record
            if (left_s := deadline_s - time.monotonic()) <= 0:
                return None
            if self._is_reading():
                self._workers.wait(min(left_s, _SLICE_S))

    def _first_of_block(self, count: int, tidy_at_s: float) -> Message | None:
        """A record of the store; up to `count` are made ready with it, for polls until `tidy_at_s`."""
        entry = self._next_ready(turns=True)
        if entry is None:
            return None
        self._taken, self._taken_of = entry.take(count), entry
        self._wake(entry)
        if not self._taken:
            return None
        self._tidy_at_s = tidy_at_s
        self._block.extend(self._taken[1:])
        return self._taken[0]

    def settle(self) -> None:
        """Bring the position of the partition that is being polled up to date. To be called before it is asked for."""
        entry = self._taken_of
        if entry is None:
            return
        polled = len(self._taken)
        while self._block:
            with suppress(IndexError):  # another thread has polled the last one
                self._block.pop()
                polled -= 1
        if polled:
            entry.delivered(self._taken[polled - 1])
        entry.give_back(self._taken[polled:])
        self._taken, self._taken_of = [], None

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        """As `Consumer.consume`."""
        self._raise_held()
        gathered = _Gathered(self._partitions.entries)
        try:
            return self._gather(gathered, count, _deadline(timeout_s))
        finally:
            gathered.give()

    def _gather(self, gathered: _Gathered, count: int, deadline_s: float) -> list[Message]:
        while True:
            gathered.hold()
            self.settle()
            now_s = self._tidy()
            ready = self._ready_records()
            room = count - len(gathered.messages)
            waits = not (ready or self._is_reading())
            try:
                gathered.messages += self._live(
                    max(room // 2, 1) if ready else room,
                    min(max(deadline_s - now_s, 0.0), _LONGEST_S) if waits else 0.0,
                )
            except Exception as error:  # of a callback of the application's
                gathered.drop_outdated()
                if not gathered.messages:
                    raise
                self._error = error  # these records are given: it is raised by the next call
                return gathered.messages
            gathered.drop_outdated()
            room = count - len(gathered.messages)
            if self._ready_records() >= room or time.monotonic() >= deadline_s:
                return gathered.messages + self._take(room)
            gathered.messages += self._take_settled(room)
            if self._is_reading():
                self._workers.wait(min(deadline_s - time.monotonic(), _SLICE_S))

    def _raise_held(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _counted(self, message: Message) -> Message:
        if message.error() is None:
            self._count(1, len(message))
        return message

    def _live(self, count: int, wait_s: float) -> list[Message]:
        if self._is_behind:
            self._partitions.positions()
        self._partitions.is_held = True
        try:
            messages = self._inner.consume(count, wait_s)
        finally:
            self._partitions.is_held = False
        self._is_behind = bool(messages)
        if not messages:
            self._partitions.was_silent(time.monotonic())
        has_news = any(map(Message.error, messages))  # which are messages with an error, and no records
        records = [message for message in messages if message.error() is None] if has_news else messages
        self._count(len(records), sum(map(len, records)))
        return [message for message in messages if not self._is_reset(message)] if has_news else messages

    def _take(self, count: int) -> list[Message]:
        if count < _MANY_RECORDS or not gc.isenabled():
            return self._take_each(count)
        gc.disable()
        try:
            return self._take_each(count)
        finally:
            gc.enable()

    def _take_each(self, count: int) -> list[Message]:
        taken: list[Message] = []
        while len(taken) < count and (entry := self._next_ready(turns=True)) is not None:
            taken += self._take_of(entry, count - len(taken))
        return taken

    def _take_of(self, entry: Entry, count: int) -> list[Message]:
        messages = entry.take(count)
        if messages:
            entry.delivered(messages[-1])
        self._wake(entry)
        return messages

    def _take_settled(self, room: int) -> list[Message]:
        """Records to which none are added before they are taken: because the store has ended with the partition, which
        is not handed over before, or because no more may wait in memory.
        """
        taken: list[Message] = []
        for entry in self._partitions.entries.values():
            if entry.has_records and _may_take(entry) and entry.feed is not None and entry.feed.is_at_rest:
                taken += self._take_of(entry, min(entry.ready_records, room - len(taken)))
        return taken

    def _next_ready(self, *, turns: bool = False) -> Entry | None:
        """The next partition of which the store has records; with `turns` the one after it is next time's."""
        entries = list(self._partitions.entries.values())
        for step in range(len(entries)):
            entry = entries[(self._turn + step) % len(entries)]
            if entry.has_records and _may_take(entry):
                if turns:
                    self._turn = (self._turn + step + 1) % len(entries)
                return entry
        return None

    def _ready_records(self) -> int:
        return sum(entry.ready_records for entry in self._partitions.entries.values() if _may_take(entry))

    def _is_reading(self) -> bool:
        """Whether records of the store are awaited."""
        return any(entry.is_awaited and _may_take(entry) for entry in self._partitions.entries.values())

    def _wake(self, entry: Entry) -> None:
        if entry.feed is not None:
            self._workers.wake(entry.feed)

    def _tidy(self) -> float:
        now_s = time.monotonic()
        self._partitions.tidy(now_s)
        if now_s >= self._store_at_s:
            self._partitions.store()
            self._store_at_s = now_s + _STORE_S
        return now_s

    def _is_reset(self, message: Message) -> bool:
        """Whether librdkafka reports an offset out of range, and the application wants it reset: then it is."""
        error = message.error()
        if error is None or error.code() != _RESET or self._reset is ResetPolicy.ERROR:
            return False
        entry = self._partitions.entries.get((message.topic() or "", message.partition() or 0))
        if entry is None:
            return False
        if entry.state.mode is Mode.BROKER:  # else it was meanwhile
            self._partitions.reset(entry, entry.state.offset)
        return True


class _Gathered:
    """What a running `consume` has taken and not given yet, in `messages`.

    Callbacks may come before it is given. To them, and to commits, positions are those before it; and what a partition
    had when it was taken away or sought elsewhere is not given any more, as with the parent.
    """

    def __init__(self, entries: Mapping[tuple[str, int], Entry]) -> None:
        self.messages: list[Message] = []
        self._entries = entries
        self._of: dict[tuple[str | None, int | None], Entry] = {}
        self._held = 0

    def hold(self) -> None:
        """The call goes on: callbacks may come."""
        for message in self.messages[self._held :]:
            entry = self._entries.get((message.topic() or "", message.partition() or 0))
            if entry is not None and entry.held is None and message.error() is None:
                entry.hold(message)
                self._of[entry.key] = entry
        self._held = len(self.messages)

    def drop_outdated(self) -> None:
        """Callbacks may have come: drop what was held of partitions that are gone or elsewhere."""
        outdated = {key for key, entry in self._of.items() if entry.held is None}
        if not outdated:
            return
        held = [one for one in self.messages[: self._held] if (one.topic(), one.partition()) not in outdated]
        self.messages[: self._held], self._held = held, len(held)
        for key in outdated:
            del self._of[key]

    def give(self) -> None:
        """The call returns."""
        for entry in self._of.values():
            entry.held = None


def _may_take(entry: Entry) -> bool:
    return not entry.state.is_paused and entry.state.mode is not Mode.BROKER


def _deadline(timeout_s: float) -> float:
    return float("inf") if timeout_s < 0 else time.monotonic() + timeout_s

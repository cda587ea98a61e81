"""Merges the records of the store with those of librdkafka, in `poll` and in `consume`.

Rules of the file:

- Only the application's thread uses it, except for `next_in_block` (see `PolledRecords`).
- Records of librdkafka are delivered at once, because librdkafka's position is already after them.
- Records of the store are taken last, so that no callback runs between taking and delivering them.
- No wait is longer than the application's timeout.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Sequence
from functools import partial

from confluent_kafka import Message

from remote_fetch.consumer.assigned import AssignedPartition, Key, key_of_message
from remote_fetch.consumer.broker_events import BrokerEvents
from remote_fetch.consumer.callbacks import Callbacks
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.partitions import Partitions
from remote_fetch.consumer.pending import PendingMessages
from remote_fetch.consumer.polled import PolledRecords
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.consumer.workers import Workers
from remote_fetch.deadline import Clock

__all__ = ["Merge"]

_BLOCK_S = 0.05
"""How long `poll` returns only records of the store. Then librdkafka is polled, which also runs callbacks."""
_WAIT_S = 0.01
"""The longest single wait while both sides may have records. librdkafka does not set the event of this package."""
_LONGEST_WAIT_S = 1.0
"""The longest single wait for librdkafka. Positions are stored between two waits, so `idle_store_s` also limits it."""
_BLOCK_RECORDS = 1_024
"""How many records are prepared for the next polls, at most."""


class Merge:
    """Makes one stream of messages from two sides.

    `count` is called for librdkafka's records, with their number and the bytes of their values. `suspends_collector`:
    Python's garbage collector is off because of a running `consume`.
    """

    def __init__(
        self,
        librdkafka: LibrdkafkaConsumer,
        partitions: Partitions,
        workers: Workers,
        settings: ConsumerSettings,
        count: Callable[[int, int], None],
        clock: Clock,
        callbacks: Callbacks,
    ) -> None:
        self._librdkafka = librdkafka
        self._callbacks, self._kept = callbacks, callbacks.kept
        self._raise_kept = partial(callbacks.raise_kept, partitions.settle)
        self._poll_librdkafka = librdkafka.poll  # once: `super().poll` takes as long as a tenth of a poll
        self._partitions, self._workers = partitions, workers
        self._events = BrokerEvents(partitions, settings.reset)
        self._longest_wait_s = settings.idle_store_s or _LONGEST_WAIT_S
        self._count = count
        self._clock = clock
        self.suspends_collector = False
        self._polled = PolledRecords(partitions.assigned, clock)
        self.next_in_block, self._live = self._polled.next_in_block, self._polled.live
        self._librdkafka_came_last = False
        self._is_running = False
        self.is_close_due = False
        """Whether the consumer is to be closed when the running `poll` or `consume` returns."""
        self._is_ahead = False
        """Whether librdkafka is after records that it gave to a call which the handler of a signal has ended."""
        self._behind: Collection[Key] | None = ()
        """The partitions whose positions may be before messages that `consume` returned. None: all partitions."""
        self._turn = 0
        # Two results of a look at `Partitions.reading`, each with the list that it is about. `Partitions` makes a new
        # list whenever it looks at the partitions. A result holds as long as the list is the same one.
        self._none_ready: Sequence[AssignedPartition] | None = None
        self._awaited: tuple[Sequence[AssignedPartition] | None, bool] = None, False

    def poll(self, timeout_s: float) -> Message | None:
        """As `Consumer.poll`.

        Each record of librdkafka is a `poll` of its own. So no method is called here that has nothing to do.
        """
        if self._polled.partition is not None and (prepared := self.next_in_block()) is not None:
            return prepared
        if self._kept:
            self._raise_kept()
        message, deadline_s = None, None
        is_within, self._is_running = self._is_running, True
        try:
            while message is None and not self.is_close_due:
                if self._polled.partition is not None or self._is_ahead:
                    self.flush_position()
                now_s = self._partitions.run_due_work()
                if deadline_s is None:
                    deadline_s = _deadline_s(timeout_s, now_s)
                elif now_s >= deadline_s:
                    break
                message = self._poll_once(now_s, deadline_s)
            return message
        finally:
            self._is_running = is_within

    def _poll_once(self, now_s: float, deadline_s: float) -> Message | None:
        """Poll librdkafka, and the store if librdkafka has no record. None: neither has one yet."""
        reading, wait_s = self._partitions.reading, deadline_s - now_s
        if reading and self._librdkafka_came_last and (record := self._next_in_turn()) is not None:
            return record
        if reading and (self._next_ready() is not None or self._awaits_store()):
            wait_s = 0.0
        elif wait_s > self._longest_wait_s:
            wait_s = self._longest_wait_s
        if self._behind is None or self._behind:
            self._catch_up()
        try:
            message = self._poll_librdkafka(wait_s)
            if self._is_ahead and message is not None:  # as in `_take_from_librdkafka`
                message = next(iter(self._partitions.not_again([message])), None)
            error = None if message is None else message.error()
            if message is not None and error is None:
                self._count(1, len(message))
                self._live[message.topic(), message.partition()] = message.offset()
            elif message is not None and self._events.is_reset(message):
                self.flush_position()
                self._events.reset(message)
                return None
        except BaseException:  # a handler of a signal has raised, and another one may raise below
            self._is_ahead, self._behind = True, ()
            self.flush_position()
            raise
        if message is None:
            self._raise_kept()
            return self._poll_store(now_s, deadline_s)
        self._librdkafka_came_last = error is None
        return message

    def _poll_store(self, now_s: float, deadline_s: float) -> Message | None:
        """A record of the store after a poll of librdkafka that gave none. Waits for the store if it may bring one."""
        self._partitions.note_empty_poll(now_s)
        self.flush_position()  # a callback may have polled
        record = self._prepare_block(_BLOCK_RECORDS, now_s + _BLOCK_S)
        if record is None and self._awaits_store():
            self._workers.wait(min(deadline_s - self._clock(), _WAIT_S))
        return record

    def _next_in_turn(self) -> Message | None:
        """A record of the store after one of librdkafka: the sides take turns while both have records.

        After an error or event librdkafka is polled again first: it may be about to take partitions away.
        """
        if self._next_ready() is None:
            return None
        self._librdkafka_came_last = False
        return self._prepare_block(1, 0.0)

    def _prepare_block(self, most: int, ends_s: float) -> Message | None:
        """Return a record of the store. Up to `most` records are prepared with it, for polls before `ends_s`."""
        partition = self._next_ready(takes_turn=True)
        if partition is None:
            return None
        self._polled.prepare(partition, most)
        self._note_taken(partition)
        return self._polled.begin(ends_s)

    def expect_callback(self) -> None:
        """Poll librdkafka before the next record of the store: it is about to take partitions away."""
        self._librdkafka_came_last = False

    def puts_off_close(self) -> bool:
        """Whether a close has to wait for the running `poll` or `consume`, which is then to return soon.

        It has to in a callback, and in a handler of a signal: after these, librdkafka goes on in its queue. If a close
        had freed the queue, the process would crash. A handler may also run while this thread holds a lock that the
        close needs.
        """
        self.is_close_due = self._is_running
        return self.is_close_due

    def _catch_up(self) -> None:
        """Take librdkafka's positions after the messages that `consume` has returned, before a call moves them on."""
        if not self._partitions.positions.are_frozen:
            self._partitions.positions.refresh(self._behind)
            self._behind = ()

    def flush_position(self) -> None:
        """Update the positions of partitions whose records `poll` returns. Call this before a position is used.

        If librdkafka is ahead, it is sent back. If another handler of a signal ends that, the next call of this method
        repeats it. It waits for the end of a `consume` whose callback made the call that a handler ended.
        """
        if self._polled.partition is not None:
            self._none_ready = None
        self._polled.flush()
        if self._is_ahead and not self._partitions.positions.are_frozen:
            self._catch_up()
            self._partitions.take_back()
            if self.is_close_due:
                self._partitions.positions.freeze()
            self._is_ahead = False

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        """As `Consumer.consume`."""
        self._raise_kept()
        pending = PendingMessages(self._partitions.assigned)
        is_within, self._is_running = self._is_running, True
        try:
            try:
                self._fill(pending, count, _deadline_s(timeout_s, self._clock()))
            except BaseException as error:  # also that of a handler of a signal
                self._callbacks.keep(error)
                pending.drop_outdated()
                pending.deliver()
            pending.release()
            if is_within:  # a call that a handler ends takes back what comes after these positions
                self._catch_up()
                self._polled.note_consumed(pending.messages)
        except BaseException as error:
            self._callbacks.keep(error)
            pending.release()
        finally:
            self._is_running = is_within
        if self._kept and not pending.messages:
            self._raise_kept()
        return pending.messages  # the application gets these first, and the error of the next call

    def _fill(self, pending: PendingMessages, count: int, deadline_s: float) -> None:
        while not self.is_close_due:
            pending.hold()
            self.flush_position()
            now_s = self._partitions.run_due_work()
            ready = self._ready_count()
            room = count - len(pending.messages)
            may_wait = not ready and not self._awaits_store()
            wait_s = min(max(deadline_s - now_s, 0.0), self._longest_wait_s) if may_wait else 0.0
            share = self._share_of(room) if ready else room
            has_events = share > 0 and self._take_from_librdkafka(pending, share, wait_s)
            pending.drop_outdated()
            if self._kept:
                return
            room = count - len(pending.messages)
            if has_events and room and self._clock() < deadline_s:
                continue  # as in `_next_in_turn`
            if self._ready_count() >= room or self._clock() >= deadline_s:
                self._take_from_store(pending.messages, room)
                return
            self._relieve_feeds(pending, room)
            if self._awaits_store():
                self._workers.wait(min(deadline_s - self._clock(), _WAIT_S))

    def _share_of(self, room: int) -> int:
        """How many messages librdkafka may give while the store has records: half. For a single one they take turns."""
        if room > 1:
            return room // 2
        self._librdkafka_came_last = not self._librdkafka_came_last
        return int(self._librdkafka_came_last)

    def _take_from_librdkafka(self, pending: PendingMessages, count: int, wait_s: float) -> bool:
        """Take up to `count` messages of librdkafka. Returns whether there are errors or events among them.

        Errors that reset a partition are not for the application.
        """
        self._catch_up()
        behind: Collection[Key] | None = ()
        try:
            call = partial(self._librdkafka.consume, count, wait_s)
            messages = self._partitions.positions.frozen_during(call)
            if self._is_ahead:  # a callback made a call that a handler ended: records after that call's come again
                messages = self._partitions.not_again(messages)
            self.flush_position()  # as in `_poll_store`
            # Each position takes time, and there may be thousands of partitions for each message.
            is_many = len(messages) > len(self._partitions.assigned)
            keys = None if is_many else set(map(key_of_message, messages))
            if not messages:
                self._partitions.note_empty_poll(self._clock())
            if not any(map(Message.error, messages)):
                self._count(len(messages), sum(map(len, messages)))
                pending.add(messages)
                self._behind = keys
                return False
            records = [message for message in messages if message.error() is None]
            self._count(len(records), sum(map(len, records)))
            looked_at = [(message, self._events.is_reset(message)) for message in messages]
            pending.add([message for message, is_reset in looked_at if not is_reset])
            self._behind = behind = keys
            pending.hold()  # a reset takes librdkafka's positions of all partitions, which are after these messages
            for message, is_reset in looked_at:
                if is_reset:
                    self._events.reset(message)
        except BaseException:  # as in `_poll_once`
            self._is_ahead, self._behind = True, behind
            self.flush_position()
            raise
        self._librdkafka_came_last = False  # it comes next, as in `_next_in_turn`
        return True

    def _take_from_store(self, messages: list[Message], count: int) -> None:
        """Append up to `count` records of the store to `messages`. Python's garbage collector is suspended.

        It would walk the new messages again and again, and free none of them. So from here on, until `consume` has
        returned, no object may be made that the collector counts. Then the application drops the messages that it had
        before, and the collector has nothing to do. It took a third of the application thread's time if it ran while
        messages were made, and a tenth if it ran once after that.
        """
        if not gc.isenabled():
            self._take_in_turns(messages, count)
            return
        try:
            self.suspends_collector = True
            gc.disable()
            self._take_in_turns(messages, count)
        finally:
            gc.enable()
            self.suspends_collector = False

    def _take_in_turns(self, messages: list[Message], count: int) -> None:
        full = len(messages) + count
        while len(messages) < full and (partition := self._next_ready(takes_turn=True)) is not None:
            self._take_from(partition, full - len(messages), messages)

    def _take_from(self, partition: AssignedPartition, count: int, messages: list[Message]) -> None:
        """Append up to `count` records of a partition to `messages`."""
        before = len(messages)
        messages += partition.records.take(count)  # at once: a handler of a signal may raise below
        if len(messages) > before:
            partition.position.deliver(messages[-1])
        self._note_taken(partition)

    def _relieve_feeds(self, pending: PendingMessages, room: int) -> None:
        """Let feeds go on that bring no more until their records are taken. At most `room` messages are added.

        - If the queue of a feed is full, its chunks are reserved. Later, messages are made of all chunks together. No
          position moves before that.
        - If a feed has ended, its records are taken, because its partition is handed over after them.
        """
        for partition in self._partitions.reading:
            feed, records = partition.feed, partition.records
            if feed is None or not (records.are_ready and partition.state.is_readable and feed.is_at_rest):
                continue
            if feed.ending is None:
                records.reserve()
                self._workers.wake(feed)
            else:
                before = len(pending.messages)
                self._take_from(partition, min(records.ready_count, room), pending.messages)
                room -= len(pending.messages) - before

    def _next_ready(self, *, takes_turn: bool = False) -> AssignedPartition | None:
        """The next partition with records of the store. With `takes_turn` the next call begins after that partition.

        If no partition has a record, the method does not search the same list again. New records are news of a feed,
        and after news `Partitions` makes a new list.
        """
        partitions = self._partitions.reading
        if partitions is self._none_ready:
            return None
        for step in range(len(partitions)):
            partition = partitions[(self._turn + step) % len(partitions)]
            if partition.records.are_ready and partition.state.is_readable:
                if takes_turn:
                    self._turn = (self._turn + step + 1) % len(partitions)
                return partition
        self._none_ready = partitions
        return None

    def _ready_count(self) -> int:
        count = 0
        for partition in self._partitions.reading:
            if partition.state.is_readable:
                if partition.records.skip_before:  # records that librdkafka has delivered do not count
                    partition.records.drop_skipped()
                    self._note_taken(partition)
                count += partition.records.ready_count
        if count:
            self._none_ready = None
        return count

    def _awaits_store(self) -> bool:
        """Whether any feed may still bring records."""
        reading, is_awaited = self._partitions.reading, self._awaited[1]
        if reading is not self._awaited[0]:
            is_awaited = any(partition.awaits_store and partition.state.is_readable for partition in reading)
            self._awaited = reading, is_awaited
        return is_awaited

    def _note_taken(self, partition: AssignedPartition) -> None:
        """Let the feed of the partition go on after records were taken. If it has ended, the partition may move on."""
        if (feed := partition.feed) is not None:
            self._workers.wake(feed)
            if feed.ending is not None:
                self._partitions.note_change()


def _deadline_s(timeout_s: float, now_s: float) -> float:
    return now_s + timeout_s if timeout_s >= 0 else float("inf")  # the parent waits for ever for NaN too

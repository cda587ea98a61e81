"""The assigned partitions: carries out what their states decide, and keeps what is committed in step with it.

Rules of the file: only the application's thread comes here, and only here librdkafka is told to fetch or not to.
No call here waits for a broker: the application may have asked for no wait at all. Records of the store are delivered
before a hand-over, which seeks without a leader epoch, for an epoch can hang. No offset outside the log is handed over
but to raise librdkafka's own error.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.committed import Committed
from remote_fetch.consumer.entries import UNKNOWN, Entry
from remote_fetch.consumer.feed import Ending, Feed, Source
from remote_fetch.consumer.inner import Inner
from remote_fetch.consumer.places import COMMITTED, IDLE, may_be_tiered, send_on, waits
from remote_fetch.consumer.settings import ConsumerSettings, ResetPolicy
from remote_fetch.consumer.states import (
    BEGINNING,
    END,
    STORED,
    Action,
    HandOver,
    Mode,
    PartitionState,
    Quiet,
    StartFeed,
    Step,
    StopFeed,
    Wake,
)
from remote_fetch.consumer.waiting import Waits
from remote_fetch.consumer.workers import Workers
from remote_fetch.errors import ErrorKind
from remote_fetch.fetch.deadlines import now_ms
from remote_fetch.observe import Notice
from remote_fetch.plan.ranges import Reason
from remote_fetch.read.fallback import Circuit

__all__ = ["Partitions"]

_LOOK_AGAIN_MS = {Reason.HOLE.value: 1_000, Reason.UNSTABLE.value: 5_000}
_LOOK_AGAIN_OTHERWISE_MS = 30_000  # a partition of librdkafka's may have fallen behind, into the tier
_UNANSWERED_MS = 5_000
_MOST_DOUBLINGS = 4
_BUSY_PATIENCE = 20
"""How many times longer a hand-over may take while other partitions have records."""


class Partitions:
    """The assigned partitions of one consumer, `inner` being its librdkafka half."""

    def __init__(
        self, inner: Inner, settings: ConsumerSettings, source: Source, workers: Workers, committed: Committed
    ) -> None:
        self._inner = inner
        self._settings = settings
        self._source = source
        self._workers = workers
        self._committed = committed
        self.entries: dict[tuple[str, int], Entry] = {}
        self._paused: set[tuple[str, int]] = set()
        """What the application has paused; with librdkafka that outlasts an assignment."""
        self._known: set[tuple[str, int]] = set()
        """What was assigned once: of what it has never heard of librdkafka keeps no pause."""
        self._was_silent_at_s = 0.0
        self._waits = Waits(self._say, lambda entry: self._inner_position(entry) >= 0)
        self.is_held = False
        """Whether librdkafka's positions may run ahead of what is given: inside its `consume` and its `close`."""

    def like(self, partitions: Iterable[TopicPartition]) -> list[Entry | None]:
        """The entry of each partition, None for one that is not assigned through us."""
        return [self.entries.get((one.topic, one.partition)) for one in partitions]

    def of(self, partitions: Iterable[TopicPartition]) -> list[Entry]:
        """Those of the partitions that are assigned through us."""
        return [entry for entry in self.like(partitions) if entry is not None]

    def others(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that are not."""
        return [one for one in partitions if (one.topic, one.partition) not in self.entries]

    # ------------------------------------------------------------------------------------------------- what is due

    def tidy(self, now_s: float) -> None:
        """Do everything that is due."""
        for asked, found in self._committed.take():
            self._begin_at_committed([entry for entry in self.of(asked) if entry.asked is asked], found)  # none if late
        for entry in self.entries.values():
            if entry.feed is not None:
                self._look_at_feed(entry, entry.feed)
            elif entry.state.mode is Mode.BROKER:
                self._look_at_broker(entry, now_s)
        self._waits.look(self.entries.values(), now_s)

    def _look_at_feed(self, entry: Entry, feed: Feed) -> None:
        entry.hear_of(feed.log)
        is_late = feed.is_late(time.monotonic(), self._settings.patience_ms / 1000)
        if feed.chunks and entry.state.is_probing:
            self._take_over(entry)
        elif entry.has_begun and entry.state.mode is Mode.LOCATING:
            entry.circuit = entry.circuit.worked()
            self._say(entry, f"is read from the store from offset {feed.first_offset} on")
            self._apply(entry, entry.state.found())
        elif is_late and entry.state.mode is Mode.LOCATING and feed.ending is None:
            # From where it began, as nothing of it was taken: what it brings in this moment is dropped with it.
            ending = feed.late(entry.state.offset)
            self._apply(entry, entry.state.at_broker(ending.offset, ending.reason, self._retry_at_ms(entry, ending)))
            return
        if entry.skip_before and feed.chunks:
            entry.skip()
            self._workers.wake(feed)
        if feed.ending is not None and not entry.has_records:
            self._feed_ended(entry, feed.ending)

    def _feed_ended(self, entry: Entry, ending: Ending) -> None:
        retry_at_ms = self._retry_at_ms(entry, ending)
        if entry.state.is_probing:
            self._apply(entry, entry.state.probe_failed(ending.reason, retry_at_ms))
        elif ending.reason == Ending.OUT_OF_RANGE:
            self.reset(entry, ending.offset)
        else:
            offset = max(ending.offset, entry.skip_before) if ending.offset >= 0 else ending.offset
            if offset > entry.position >= 0:
                entry.position = offset  # past markers and aborted records
            self._apply(entry, entry.state.at_broker(offset, ending.reason, retry_at_ms))

    def _retry_at_ms(self, entry: Entry, ending: Ending) -> int | None:
        if ending.reason == ErrorKind.NOT_CONFIGURED:
            return None  # and never will be
        circuit = self._source.open_circuit()
        if ending.is_storage and circuit is not None:
            return circuit.retry_at_ms
        if ending.is_failure:
            entry.circuit = entry.circuit.failed(ending.reason, now_ms())
            return entry.circuit.retry_at_ms
        return now_ms() + _LOOK_AGAIN_MS.get(ending.reason, _LOOK_AGAIN_OTHERWISE_MS)

    def _look_at_broker(self, entry: Entry, now_s: float) -> None:
        if entry.handed_over_at_s is not None and self._is_overdue(now_s, entry.handed_over_at_s, entry.watched):
            self._watch(entry)
        if entry.state.is_due(int(now_s * 1000)):
            offset = self._where(entry)
            known = self._inner.get_watermark_offsets(entry.at(), cached=True)
            if offset < 0 or (known is not None and offset >= known[1] >= 0):
                self._apply(entry, entry.state.later(now_ms() + _LOOK_AGAIN_OTHERWISE_MS))  # it is at its tail
            else:
                self._apply(entry, entry.state.probe(offset))

    def was_silent(self, now_s: float) -> None:
        """librdkafka was asked for records and had none, of no partition."""
        self._was_silent_at_s = now_s

    def _is_overdue(self, now_s: float, handed_over_at_s: float, times: int) -> bool:
        """Whether a hand-over should have brought something by now; it may take longer each time.

        A hand-over throws away what librdkafka has fetched. So it is not overdue before librdkafka was asked and had
        nothing; if other partitions keep it busy, not before very long.
        """
        watchdog_s = self._settings.watchdog_ms / 1000 * (1 << min(times, _MOST_DOUBLINGS))
        is_silent = self._was_silent_at_s - handed_over_at_s > watchdog_s
        return is_silent or now_s - handed_over_at_s > watchdog_s * _BUSY_PATIENCE

    def _watch(self, entry: Entry) -> None:
        """Repeat a hand-over that has brought nothing, unless the log is known to end there."""
        offset, times, entry.handed_over_at_s = entry.state.offset, entry.watched, None
        is_silent = offset >= 0 and not entry.state.is_paused and self._inner_position(entry) < 0
        if is_silent and (not 0 <= entry.end_offset <= offset or not times):
            self._hand_over(entry, offset)
            entry.watched = times + 1

    def _take_over(self, entry: Entry) -> None:
        """The store can go on where librdkafka is now."""
        self._inner.pause([entry.at()])
        position = self._inner_position(entry)
        if position >= 0:
            entry.position = position
        entry.skip_before = position if position >= 0 else entry.state.offset
        entry.circuit = entry.circuit.worked()
        self._apply(entry, entry.state.taken_over(entry.skip_before))
        self._say(entry, f"is read from the store again, from offset {entry.skip_before} on")

    # --------------------------------------------------------------------------------------- what decisions lead to

    def reset(self, entry: Entry, offset: int) -> None:
        """Apply the application's auto.offset.reset: `offset` is not in the log."""
        policy = self._settings.reset
        entry.position = entry.stored = UNKNOWN
        if policy is ResetPolicy.ERROR:
            # librdkafka, which resets nothing here, raises its own error for it.
            self._apply(entry, entry.state.at_broker(offset, Ending.OUT_OF_RANGE, None))
            return
        self._say(entry, f"offset {offset} is out of range: reset to {policy}")
        if policy is ResetPolicy.EARLIEST:
            self._apply(entry, entry.state.sought(BEGINNING))
        else:
            self._apply(entry, entry.state.at_broker(END, Ending.OUT_OF_RANGE, None))

    def _apply(self, entry: Entry, step: Step) -> None:
        was = entry.state.mode
        entry.state, actions = step
        for action in actions:
            self._do(entry, action)
        if entry.state.mode is Mode.BROKER and was is not Mode.BROKER:
            self._say(entry, f"is read from the broker from offset {entry.state.offset} on ({entry.state.reason})")

    def _do(self, entry: Entry, action: Action) -> None:
        match action:
            case Quiet():
                self._inner.pause([entry.at()])
            case Wake():
                self._inner.resume([entry.at()])
            case HandOver(offset):
                entry.watched = 0
                self._hand_over(entry, offset)
            case StopFeed():
                self._stop_feed(entry)
            case StartFeed(offset):
                entry.drop_records()
                entry.feed = Feed(self._source, entry.topic, entry.number, offset)
                self._workers.add(entry.feed)

    def _hand_over(self, entry: Entry, offset: int) -> None:
        try:
            if offset == STORED:
                self._assign_again([entry], offset)
            else:
                send_on(self._inner, entry, offset)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self._assign_again([entry], offset)
        entry.handed_over_at_s = time.monotonic()

    def _assign_again(self, entries: Sequence[Entry], offset: int) -> None:
        """Have partitions begin at an offset that cannot be sought, or after librdkafka has stopped them.

        It stops a partition whose offset is out of range, and seeks it no more; assigned once more it goes on. Where it
        does not let single partitions be assigned, all are, those that go on where they are.
        """
        again, stopped = list(entries), [entry.at() for entry in entries]
        if self._settings.is_cooperative:
            self._inner.incremental_unassign(stopped)
            self._inner.resume(stopped)
            self._inner.incremental_assign([entry.at(offset) for entry in entries])
        else:
            again = list(self.entries.values())
            chosen = set(entries)
            places = [offset if one in chosen else self._where(one) for one in again]
            self._inner.resume(stopped)
            self._inner.assign([one.at(place) for one, place in zip(again, places, strict=True)])
            for one, place in zip(again, places, strict=True):
                if one.state.mode is Mode.BROKER:  # which has forgotten its position, and began there
                    one.state = replace(one.state, offset=place)
        for one in again:
            one.stored = UNKNOWN  # an assignment forgets it

    def _where(self, entry: Entry) -> int:
        """From where on librdkafka would fetch a partition, if it did."""
        if entry.state.mode is not Mode.BROKER:
            return IDLE
        position = self._inner_position(entry) if entry.state.is_fetched else UNKNOWN
        return position if position >= 0 else entry.state.offset

    def _stop_feed(self, entry: Entry) -> None:
        entry.drop_records()
        feed, entry.feed = entry.feed, None
        if feed is not None:
            self._workers.drop(feed)

    def _say(self, entry: Entry, text: str) -> None:
        self._source.session.observe(Notice(f"{entry.topic}-{entry.number} {text}"))

    # ------------------------------------------------------------------------------------- what the application does

    def begin(self, partitions: Sequence[TopicPartition], *, replaces: bool) -> None:
        """librdkafka has the partitions assigned: let it fetch or not. Its pauses outlast an assignment."""
        self.drop(None if replaces else partitions)
        circuit = Circuit(first_pause_ms=self._settings.retry_pause_ms)
        entries = [Entry(one.topic, one.partition, one.offset, circuit) for one in partitions]
        for entry in entries:
            self.entries[entry.key] = entry
            self._known.add(entry.key)
            entry.state = PartitionState(Mode.LOCATING, entry.assigned_offset, entry.key in self._paused)
            if not waits(entry.assigned_offset):
                entry.state = replace(entry.state, mode=Mode.BROKER, retry_at_ms=now_ms() + _LOOK_AGAIN_OTHERWISE_MS)
        quiet = [entry for entry in entries if entry.state.mode is not Mode.BROKER or entry.state.is_paused]
        self._source.share_among(len(self.entries))
        self._inner.pause([entry.at() for entry in quiet])
        self._inner.resume([entry.at() for entry in entries if entry not in quiet])
        if unknown := [entry.at() for entry in entries if entry.state.offset in COMMITTED]:
            for entry in entries:
                entry.asked = unknown
            self._committed.ask(unknown)
        for entry in entries:
            if entry.state.mode is not Mode.BROKER and entry.state.offset not in COMMITTED:
                self._begin_at(entry, entry.state.offset)

    def _begin_at(self, entry: Entry, offset: int) -> None:
        circuit = self._source.open_circuit()
        if not may_be_tiered(offset):
            self._apply(entry, entry.state.at_broker(offset, "assigned", now_ms() + _LOOK_AGAIN_OTHERWISE_MS))
        elif circuit is None:
            self._apply(entry, PartitionState.start(offset, is_paused=entry.state.is_paused))
        else:
            self._apply(entry, entry.state.at_broker(offset, circuit.reason, circuit.retry_at_ms))

    def _begin_at_committed(self, entries: Iterable[Entry], found: Iterable[TopicPartition]) -> None:
        """Begin where the group has committed, else where `auto.offset.reset` says. Unanswered, librdkafka asks."""
        resets = {ResetPolicy.EARLIEST: BEGINNING, ResetPolicy.LATEST: END}
        offsets = {
            (one.topic, one.partition): one.offset if one.offset >= 0 else resets.get(self._settings.reset, STORED)
            for one in found
            if one.error is None
        }
        unanswered = []
        for entry in entries:
            if entry.state.mode is not Mode.LOCATING or entry.state.offset not in COMMITTED:
                continue  # the application has gone elsewhere since
            offset = offsets.get(entry.key, STORED)
            if offset != STORED:
                self._begin_at(entry, offset)
                continue
            entry.state, _ = entry.state.at_broker(STORED, "committed", now_ms() + _UNANSWERED_MS)
            if not entry.state.is_paused:
                unanswered.append(entry)
        if unanswered:
            self._assign_again(unanswered, STORED)

    def drop(self, partitions: Iterable[TopicPartition] | None) -> None:
        """Partitions are no longer assigned; None: none is."""
        for entry in list(self.entries.values()) if partitions is None else self.of(partitions):
            self._stop_feed(entry)
            entry.held = None
            del self.entries[entry.key]
        self._source.share_among(len(self.entries))

    def seek(self, entry: Entry, offset: int) -> None:
        """Go on elsewhere."""
        entry.position, entry.stored, entry.held = UNKNOWN, UNKNOWN, None
        if may_be_tiered(offset):
            self._apply(entry, entry.state.sought(offset))
        else:
            self._apply(entry, entry.state.at_broker(offset, "sought", now_ms() + _LOOK_AGAIN_OTHERWISE_MS))

    def pause(self, entries: Iterable[Entry]) -> None:
        """The application pauses partitions; what has been read from the store is kept."""
        for entry in entries:
            self._paused.add(entry.key)
            self._apply(entry, entry.state.paused())

    def resume(self, entries: Iterable[Entry]) -> None:
        """The application resumes partitions."""
        for entry in entries:
            self._paused.discard(entry.key)
            self._apply(entry, entry.state.resumed())

    def pause_absent(self, partitions: Iterable[TopicPartition]) -> None:
        """The application pauses `others`: for those that were assigned once it counts when they are again."""
        self._paused.update({(one.topic, one.partition) for one in partitions} & self._known)

    def resume_absent(self, partitions: Iterable[TopicPartition]) -> None:
        """The application resumes `others`."""
        self._paused -= {(one.topic, one.partition) for one in partitions}

    # --------------------------------------------------------------------------------------------------- positions

    def positions(self) -> None:
        """Bring the positions of what librdkafka reads up to date: past markers too, as it counts them itself."""
        theirs = [entry for entry in self.entries.values() if entry.state.is_fetched]
        if not theirs or self.is_held:
            return
        found = self._inner.position([entry.at() for entry in theirs])
        for entry, one in zip(theirs, found, strict=True):
            if one.offset >= 0 and one.error is None:
                entry.position, entry.leader_epoch = one.offset, one.leader_epoch

    def store(self) -> None:
        """Store the positions for commits, as `enable.auto.offset.store` would."""
        if not self._settings.stores_offsets:
            return
        self.positions()
        news = [entry for entry in self.entries.values() if entry.given_up_to > entry.stored]
        if not news:
            return
        # What is no longer assigned by now has nothing to store.
        with contextlib.suppress(KafkaException):
            self._inner.store_offsets(offsets=[entry.to_store() for entry in news])
        for entry in news:
            entry.stored = entry.given_up_to

    def _inner_position(self, entry: Entry) -> int:
        (found,) = self._inner.position([entry.at()])
        return int(found.offset)

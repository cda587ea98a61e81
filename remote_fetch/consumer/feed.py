"""Reads one partition from the store: a worker plans and decodes, the application's thread takes the records.

Rules of the file:

- A feed begins at one offset. If it cannot go on, its ending tells where and why. Decoded records can still be taken.
- At most one worker at a time works for a feed. The worker and the application's thread both use the fields that `Feed`
  names as shared. Only the worker uses the other fields.
- No call here goes to the application's consumer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.consumer.feed_context import LOCAL_START_S, FeedContext
from remote_fetch.consumer.offsets import BEGINNING, TAIL
from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.decode.messages import MESSAGE_COLUMNS
from remote_fetch.errors import (
    Cancelled,
    EpochMismatch,
    ErrorKind,
    OffsetOutOfRange,
    RemoteFetchError,
    TopicRecreated,
    UnknownTopic,
)
from remote_fetch.formats.codecs import Codecs
from remote_fetch.model import LogBounds, TopicIdPartition, Uuid
from remote_fetch.observe import Event, Fallback, Notice
from remote_fetch.plan.ranges import Reason
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.refusals import original, unexpected
from remote_fetch.prepare.view import OpenPartition
from remote_fetch.scan.rows import ReadRows
from remote_fetch.scan.scan import Scan
from remote_fetch.session.circuit import is_storage_failure

__all__ = ["Ending", "Feed"]

_SLICES_AHEAD = 16
"""How many segments one plan covers. They are enough for reading ahead, and so few that planning takes little time."""
_OUTDATED_S = 2.0
"""How long the end of the tier is believed. The application may take the records before it much later."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a feed gives nothing from `offset` on. `reason` is a Reason, an ErrorKind or a constant of this class.

    `offset` is logical if the brokers have not resolved it. `leader_epoch` is that of the record before `offset`. None:
    the feed has read none, or the tier does not tell it. `at_s` is when the feed came to it.
    """

    offset: int
    reason: str
    is_failure: bool = False
    is_storage: bool = False
    leader_epoch: int | None = None
    at_s: float = float("inf")

    UNANSWERED = "unanswered"
    """The brokers do not answer the questions before a read of the store. This is not a failure of the store."""
    OUT_OF_RANGE = ErrorKind.OFFSET_OUT_OF_RANGE.value
    UNAUTHORIZED = "unauthorized"
    UNEXPECTED = "error"
    """A fetcher or an installed package is broken."""


class Feed:
    """The records of one partition from `offset` on, as far as the store has them.

    Shared between the threads:

    - `chunks`: a worker appends, and the application takes.
    - `ending`: the worker sets it last. `look_again` takes it away.
    - `is_cancelled`: the application sets it.
    - `log`, `topic_id`, `first_offset`, `offset` and `asks_brokers`: the worker sets them, and the application only
      reads them. `log` has the ends of the log, from the last answer. `offset` is that of the next record, logical
      until the brokers have resolved it. `asks_brokers`: the worker waits for an answer of the brokers.

    `expected_id`: `offset` is of the log of the topic with this id. If the name belongs to another topic now, `offset`
    is out of range. None: nothing is compared.
    `leader_epoch`: that of the record before `offset`, if known. If the tier has another one there, the feed fails.
    """

    def __init__(
        self,
        context: FeedContext,
        topic: str,
        number: int,
        offset: int,
        expected_id: Uuid | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic, self.number = topic, number
        self.chunks: deque[DecodedRows] = deque()
        self.ending: Ending | None = None
        self.is_cancelled = False
        self.log = LogBounds(None)
        self.topic_id: Uuid | None = None
        self._expected_id = expected_id
        self._context = context
        self._since_s = context.clock()
        context.begin(topic)
        self._looks_again = False
        self.asks_brokers = False
        self.first_offset = self.offset = offset
        self._leader_epoch = leader_epoch
        self._rows: ReadRows | None = None
        self._opened: OpenPartition | None = None
        self._stop, self._share_bytes = -1, 0
        self._codecs: Codecs | None = None

    @property
    def wants_work(self) -> bool:
        """Whether this feed has work for a worker."""
        return not (self.is_cancelled or self.is_at_rest)

    @property
    def is_at_rest(self) -> bool:
        """Whether the feed brings no further record before one is taken, or has ended."""
        waiting = sum(chunk.size_bytes for chunk in tuple(self.chunks))
        return self.ending is not None or waiting >= max(self._context.queued_bytes, 1)

    def work(self) -> bool:
        """Plan, or decode one chunk. Returns whether the application has to look at the feed. Raises no error."""
        try:
            return self._go_on()
        except Cancelled:
            return self._end(Ending(self.offset, ErrorKind.CANCELLED))
        except OffsetOutOfRange:
            if self._rows is not None:  # records were deleted under the scan, and the log may have grown since its plan
                with contextlib.suppress(Exception):
                    self._hear_of(self._context.partition(self.topic, self.number))
            return self._end(Ending(self.offset, Ending.OUT_OF_RANGE))
        except UnknownTopic as error:
            self._context.forget(self.topic)
            self._say(error)
            if self._expected_id is not None:
                return self._end(Ending(self.offset, Ending.OUT_OF_RANGE))
            return self._end(Ending(self.offset, error.kind, is_failure=True))
        except KafkaException as error:
            refused = error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            self._say(error.args[0].str())
            reason = Ending.UNAUTHORIZED if refused else ErrorKind.UNLOCATABLE.value
            return self._end(Ending(self.offset, reason, is_failure=True))
        except RemoteFetchError as error:
            self._say(error)
            first = original(error)
            return self._end(Ending(self.offset, first.kind, is_failure=True, is_storage=is_storage_failure(first)))
        except BaseException as error:  # a fetcher may have a bug, and a library in Rust raises no Exception in a panic
            self._say(unexpected(error))
            return self._end(Ending(self.offset, Ending.UNEXPECTED, is_failure=True))

    @property
    def is_outdated(self) -> bool:
        """Whether the tier may go on behind the ending by now, because this feed came to it a while ago.

        Never after a second look that brought no record: the application waits for one second look only.
        """
        if self.ending is None or self.ending.is_failure or self._looks_again:
            return False
        is_of_tier = self.ending.reason in (Reason.LOCAL, Reason.NOT_TIERED)
        return is_of_tier and self._context.clock() - self.ending.at_s > _OUTDATED_S

    def look_again(self) -> None:
        """Go on from the ending, if the tier has more now. The application calls this, and then wakes a worker."""
        self._since_s, self._looks_again, self.ending = self._context.clock(), True, None

    def cancel(self) -> None:
        """Stop working. The application takes no more records of this feed."""
        self.is_cancelled = True

    def close(self) -> None:
        """End the scan. The feed's worker calls this. If no worker works for the feed, any thread may call it."""
        self._drop_scan()
        self._codecs = None
        brokers = self._context.session.brokers
        if brokers is not None and self.topic_id is not None:
            brokers.guard.forget(TopicIdPartition(self.topic_id, self.topic, self.number))

    def _go_on(self) -> bool:
        circuit = self._context.open_circuit()
        if circuit is not None:
            return self._end(Ending(self.offset, circuit.reason, is_failure=True, is_storage=True))
        if self._rows is not None and self._share_bytes > 2 * self._context.share_bytes:
            self._drop_scan()  # more partitions were assigned, so the share of this one is smaller
        if self._rows is None:
            ending = self._plan()
            if ending is not None:
                return self._end(ending)
        assert self._rows is not None
        chunk = next(self._rows, None)
        self._context.worked()
        if chunk is None:
            self._drop_scan()
            self._move_to(self._stop)
            return False
        assert isinstance(chunk, DecodedRows), "a consumer's session reads no broker ranges"
        self._looks_again = False
        self.chunks.append(chunk)
        self._move_to(chunk.end_offset)
        return True

    def _move_to(self, offset: int) -> None:
        assert self._opened is not None
        self.offset, self._leader_epoch = offset, self._opened.leader_epoch_before(offset)

    def _plan(self) -> Ending | None:
        """Plan from the current offset on. Returns the ending if the tier has nothing to read there."""
        context, session = self._context, self._context.session
        self.asks_brokers = True
        try:
            partition = self._partition()
            local_start = context.local_start(partition, _OUTDATED_S if self._looks_again else LOCAL_START_S)
            # One answer is for all partitions, and the questions below are for one. A hand-over at 0 needs the log end.
            if local_start is not None and self.offset >= max(local_start, 1):
                return Ending(self.offset, Reason.LOCAL)
            self._hear_of(partition)
            first, stop = self.offset, self.log.end_offset or 0
            self.first_offset = first if self.first_offset < 0 else self.first_offset
            timeline = session.newest_timeline(partition, first, stop, isolation=context.isolation, most=_SLICES_AHEAD)
        finally:
            self.asks_brokers = False
        session.note_unusable(timeline)
        if first > max((segment.end_offset for segment in timeline.segments), default=-1):
            return self._nothing_tiered(first)
        planner = Planner(session, context.isolation)
        opened = replace(planner.open_timeline(timeline, self.log), local_start=local_start)
        self._check_epoch(opened, first)
        plan = planner.leading(opened, first, _SLICES_AHEAD)
        if isinstance(plan, str):
            return Ending(first, plan)
        self._opened, self._stop = opened, plan.steps[-1].stop_offset
        self._codecs = self._codecs or Codecs(max_bytes=session.config.settings.max_decompressed_bytes)
        self._share_bytes = context.share_bytes
        scan = Scan(
            session,
            [plan],
            MESSAGE_COLUMNS,
            codecs=self._codecs,
            max_bytes=self._share_bytes // 2,
            pool=session.decode_pool.within(context.queued_bytes),
        )
        self._rows = scan.rows()
        return None

    def _partition(self) -> TopicIdPartition:
        """The partition with its topic id, if it may be read.

        Raises TopicRecreated if another id is expected, UnknownTopic, and the errors of `LogGuard.authorise`.
        """
        expected_id, brokers = self._expected_id, self._context.session.brokers
        if expected_id is not None:
            self._context.forget(self.topic)  # the id may be older than the topic of now
        partition = self._context.partition(self.topic, self.number)
        if expected_id not in (None, partition.topic_id):
            raise TopicRecreated(f"topic {self.topic!r} has the id {partition.topic_id} now", topic=self.topic)
        self._expected_id, self.topic_id = None, partition.topic_id
        if brokers is not None:
            # Not by an answer from before a seek: by now the offset may be of another topic of the same name.
            brokers.guard.authorise(partition, since_s=self._since_s)
        return partition

    def _hear_of(self, partition: TopicIdPartition) -> None:
        """Ask for the ends of the log, and resolve a logical offset. Raises OffsetOutOfRange."""
        brokers = self._context.session.brokers
        if brokers is None:
            return
        self.log = brokers.guard.ask(partition, self._context.isolation)
        low, high = self.log.log_start_offset or 0, self.log.end_offset or 0
        if self.offset == BEGINNING:
            self.offset = low
        elif self.offset <= TAIL:
            self.offset = max(high + self.offset - TAIL, 0)
        if not low <= self.offset:
            raise OffsetOutOfRange(f"the log starts at {low}", topic=self.topic, partition=self.number)

    def _nothing_tiered(self, first: int) -> Ending:
        """The ending if no segment was found from `first` on: no offset is tiered, or segments cannot be located."""
        if self._context.session.configured_locator.is_off:
            return Ending(first, ErrorKind.NOT_CONFIGURED)
        unlocated = self._context.session.configured_locator.unlocated
        return Ending(first, unlocated or Reason.NOT_TIERED, is_failure=unlocated is not None)

    def _check_epoch(self, opened: OpenPartition, offset: int) -> None:
        """Raise EpochMismatch if the log before `offset` is not the one that was known, because it was truncated."""
        known = self._leader_epoch
        if known is not None and not opened.is_known_to(known, offset):
            now = opened.leader_epoch_before(offset)
            text = f"the record before was of leader epoch {known}, and that of the log is of {now} now"
            raise EpochMismatch(text, topic=self.topic, partition=self.number, offset=self.offset)

    def _end(self, ending: Ending) -> bool:
        self._drop_scan()
        if ending.is_storage:
            self._context.failed(ending.reason)
        if ending.is_failure:
            self._count(ending)
        self._context.session.surveyor.explain(ending.reason, waits=False)
        self.ending = replace(ending, leader_epoch=self._leader_epoch, at_s=self._context.clock())
        return True

    def is_late(self, now_s: float, patience_s: float) -> bool:
        """Whether, for `patience_s`, this feed has brought nothing, and neither store nor broker has answered any feed.

        If the store or a broker answers other feeds, this feed only waits for its turn: a worker, a lock, a GET.
        """
        since_s = now_s - patience_s
        return self._since_s < since_s and self._context.session.answered_s < since_s

    def late(self, offset: int, leader_epoch: int | None = None) -> Ending:
        """Report that the application waits no longer for this feed's next record. Returns the ending to go on with.

        `offset` is where the feed began, or the application's position after its records, with the leader epoch of the
        last one. Only the worker knows how far the feed has come.
        """
        is_store = self._context.session.reader.is_asking and not self.asks_brokers
        reason = ErrorKind.READ_TIMEOUT if is_store else Ending.UNANSWERED
        ending = Ending(offset, reason, is_failure=True, leader_epoch=leader_epoch)
        self._count(ending)
        return ending

    def _count(self, ending: Ending) -> None:
        known = self._context.known(self.topic, self.number)
        first = max(ending.offset, self.log.log_start_offset or 0)
        last = -1 if self.log.end_offset is None else max(self.log.end_offset - 1, first)
        self._tell(Fallback(known, first, last, ending.reason))

    def _drop_scan(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    def _say(self, what: object) -> None:
        text = f"{self.topic}-{self.number}: {what}; reading on through the broker"
        self._tell(Notice(text, is_warning=True))

    def _tell(self, event: Event) -> None:
        """Send an event. A cancelled feed sends none: a close takes the clients away from a worker that waits."""
        if not self.is_cancelled:
            self._context.session.observe(event)

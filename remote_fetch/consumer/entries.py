"""One assigned partition as the application's thread sees it: its state, its feed, what has been delivered of it.

Rules of the file: only the application's thread comes here. A position is that of the next record that the application
has not been given; what is stored for commits never lies behind what was stored, but after the application's own seek.
"""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

from remote_fetch.consumer.feed import Feed
from remote_fetch.consumer.states import Mode, PartitionState
from remote_fetch.decode.messages import MessageCursor
from remote_fetch.model import LogBounds
from remote_fetch.read.fallback import Circuit

__all__ = ["UNKNOWN", "Entry"]

UNKNOWN = -1001
"""librdkafka's logical offset that is none."""


class Entry:
    """One assigned partition.

    `position` is what was delivered up to, UNKNOWN before the first record; `stored` is what was stored of it for
    commits. `assigned_offset` is what the application assigned it with. `handed_over_at_s` is when librdkafka was told
    to go on, None once it has; `watched` is how often that was repeated. Records of the store before `skip_before` were
    librdkafka's; 0: no more of them come. `held` is the position before what a running `consume` has taken and not
    given yet, None where there is none.
    `asked` is the question that the group was asked for its committed offset.
    `circuit` tells how long the partition is left to librdkafka after its segments failed.
    """

    def __init__(self, topic: str, number: int, assigned_offset: int, circuit: Circuit) -> None:
        self.topic, self.number = topic, number
        self.assigned_offset = assigned_offset
        self.state = PartitionState(Mode.LOCATING, assigned_offset)
        self.feed: Feed | None = None
        self.position = self._position_before = UNKNOWN
        self.leader_epoch: int | None = None
        self.stored = UNKNOWN
        self.handed_over_at_s: float | None = None
        self.watched = 0
        self.end_offset = UNKNOWN
        self.circuit = circuit
        self.skip_before = 0
        self.held: int | None = None
        self.log_start = UNKNOWN
        self.asked: object = None
        self._cursor: MessageCursor | None = None
        self._rest: list[Message] = []

    @property
    def key(self) -> tuple[str, int]:
        """Topic and number."""
        return self.topic, self.number

    def at(self, offset: int = UNKNOWN) -> TopicPartition:
        """The partition as confluent_kafka names it."""
        return TopicPartition(self.topic, self.number, offset)

    @property
    def given_up_to(self) -> int:
        """`position`, but for what a running `consume` still holds."""
        return self.position if self.held is None else min(self.position, self.held)

    @property
    def has_records(self) -> bool:
        """Whether records of the store can be taken now."""
        return bool(self._rest or self._cursor or (self.feed is not None and self.feed.chunks))

    @property
    def is_awaited(self) -> bool:
        """Whether records of the store, or the news that there are none, may come at any time."""
        return self.feed is not None or self.state.mode is Mode.LOCATING

    @property
    def has_begun(self) -> bool:
        """Whether a partition that is looked for in the store was found there: records may have been taken at once."""
        return self.has_records or self.position >= 0

    @property
    def ready_records(self) -> int:
        """How many records, at least, can be taken now."""
        chunks = self.feed.chunks if self.feed is not None else ()
        return len(self._rest) + len(self._cursor or ()) + sum(chunk.rows for chunk in tuple(chunks))

    def take(self, count: int) -> list[Message]:
        """At most `count` records of the store, in order; none only if none are there."""
        taken, self._rest = self._rest[:count], self._rest[count:]
        while len(taken) < count and self._open_next():
            assert self._cursor is not None
            taken += self._cursor.take(count - len(taken))
        return taken

    def skip(self) -> None:
        """Let go of records of the store that librdkafka has given: only what can be given counts as ready."""
        if self.skip_before:
            self._open_next()

    def _open_next(self) -> bool:
        while not self._cursor and self.feed is not None and self.feed.chunks:
            self._cursor = MessageCursor(self.feed.chunks.popleft().batch, self.topic, self.number, Message)
            self._cursor.skip_before(self.skip_before)
            if self._cursor:
                self.skip_before = 0
        return bool(self._cursor)

    def hear_of(self, log: LogBounds) -> None:
        """Take the ends of the log as they are known by now."""
        self.log_start = UNKNOWN if log.log_start_offset is None else log.log_start_offset
        self.end_offset = UNKNOWN if log.end_offset is None else log.end_offset

    def give_back(self, messages: list[Message]) -> None:
        """Records that were taken and not delivered."""
        self._rest = messages + self._rest

    def delivered(self, last: Message) -> None:
        """The application has been given records up to this one."""
        offset = last.offset()
        assert offset is not None
        self._position_before = self.position
        self.position, self.leader_epoch = offset + 1, last.leader_epoch()

    def hold(self, first: Message) -> None:
        """What was taken from here on is not given yet: of the store's the position has passed what was taken last."""
        offset = first.offset()
        assert offset is not None
        self.held = self.position if self.position <= offset else self._position_before

    def drop_records(self) -> None:
        """Forget what was taken from the store and not delivered."""
        self._cursor, self._rest, self.skip_before = None, [], 0

    def to_store(self) -> TopicPartition:
        """The position as `Consumer.store_offsets` takes it."""
        if self.leader_epoch is None or self.leader_epoch < 0:
            return self.at(self.given_up_to)
        return TopicPartition(self.topic, self.number, self.given_up_to, leader_epoch=self.leader_epoch)

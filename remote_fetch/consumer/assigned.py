"""One assigned partition, for the application's thread.

Rules of the file:

- Only the application's thread uses it.
- The fields of a partition, of its position and of its records change through their methods alone.
- Nothing here calls librdkafka. A change of the state gives actions, and `Transitions` carries them out.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from confluent_kafka import Message, TopicPartition

from remote_fetch.consumer.feed import Feed
from remote_fetch.consumer.offsets import BEGINNING, COMMITTED, INVALID, STORED, partition_at
from remote_fetch.consumer.position import Position
from remote_fetch.consumer.states import Action, Mode, PartitionState, Step
from remote_fetch.consumer.store_records import StoreRecords
from remote_fetch.consumer.stored_offset import StoredOffset
from remote_fetch.model import LogBounds, Uuid
from remote_fetch.session.circuit import Circuit

__all__ = ["AssignedPartition", "Key", "key_of", "key_of_message"]

_MOST_QUESTIONS = 4
"""How often the group is asked for the offset of one assignment. A question without an answer takes five seconds."""
Key: TypeAlias = tuple[str, int]
"""Topic and number of a partition."""


def key_of(partition: TopicPartition) -> Key:
    """The key of a partition that the application or librdkafka names."""
    return partition.topic, partition.partition


def key_of_message(message: Message) -> Key:
    """The key of the partition that a message of librdkafka is about."""
    return message.topic() or "", message.partition() or 0


class AssignedPartition:
    """One assigned partition: its state, the position of the application in it, and the records from the store.

    - `key` is topic and number. `given` is the partition as the application or the group has assigned it.
    - `log` has the ends of its log, from the last answer of a broker.
    - `topic_id` is that of the topic whose segments a feed has looked for. None: it is not known.
    - `circuit` tells how long librdkafka reads the partition after its segments have failed.
    - If `stores_offsets` is false, only the application stores positions for commits.
    """

    def __init__(
        self, given: TopicPartition, state: PartitionState, circuit: Circuit, *, stores_offsets: bool = True
    ) -> None:
        self.key = self.topic, self.number = key_of(given)
        start = STORED if given.offset == INVALID else given.offset
        # The application may change its object, and the one that it is given.
        self._metadata = given.metadata
        self._assignment = partial(partition_at, *self.key, start, given.leader_epoch, given.metadata)
        self.state = state
        self.position = Position(*self.key)
        self.stored = StoredOffset(self.position, is_automatic=stores_offsets)
        self.records = StoreRecords(*self.key)
        self.log = LogBounds(None)
        self.topic_id: Uuid | None = None
        self.undone: tuple[Action, ...] = ()
        """The actions that lead to the state. A handler of a signal may end them before their time: they stay then."""
        self._circuit = circuit
        self._question: object = None
        self._questions = 0

    def topic_partition(self, offset: int = INVALID, leader_epoch: int | None = None) -> TopicPartition:
        """The partition as confluent_kafka's type."""
        return partition_at(self.topic, self.number, offset, leader_epoch)

    def assignable(self, offset: int, leader_epoch: int | None) -> TopicPartition:
        """The partition to assign in librdkafka at `offset`, with the metadata with which it was assigned."""
        return partition_at(self.topic, self.number, offset, leader_epoch, self._metadata)

    @property
    def assignment(self) -> TopicPartition:
        """The partition as `Consumer.assignment` tells it: as it was assigned."""
        return self._assignment()

    @property
    def feed(self) -> Feed | None:
        """The feed that reads the partition from the store, or tries to."""
        return self.records.feed

    @property
    def log_start(self) -> int:
        """The first offset of the log, INVALID if it is not known."""
        return INVALID if self.log.log_start_offset is None else self.log.log_start_offset

    @property
    def log_end(self) -> int:
        """The offset after the last record of the log, INVALID if it is not known."""
        return INVALID if self.log.end_offset is None else self.log.end_offset

    @property
    def goes_on_at(self) -> tuple[int, int | None]:
        """The application's position, and the leader epoch before it. Before its first record, where reading began."""
        known, begun = self.position, self.state
        return (known.next_offset, known.leader_epoch) if known.next_offset >= 0 else (begun.offset, begun.leader_epoch)

    @property
    def may_go_back(self) -> bool:
        """Whether librdkafka can be sent back to `goes_on_at`. It cannot if that is the end of the log."""
        offset, _ = self.goes_on_at
        return offset >= 0 or offset in (BEGINNING, STORED)

    # ---------------------------------------------------------------------------------------------------- its state

    def enter(self, step: Step) -> None:
        """Take the state of a step. The caller carries out its actions, after those that are undone."""
        self.state, self.undone = step[0], self.undone + step[1]

    def note_done(self) -> None:
        """Note that no action is undone."""
        self.undone = ()

    def ask(self, question: object) -> None:
        """Note that the group was asked for the committed offset. `question` identifies the request."""
        self._question = question
        self._questions += 1

    @property
    def may_ask_again(self) -> bool:
        """Whether the group is asked once more if librdkafka says that it has no committed offset."""
        return self._questions < _MOST_QUESTIONS

    def awaits(self, question: object) -> bool:
        """Whether the partition still begins at the answer to this question.

        It does not if the application has sought elsewhere, or assigned the partition once more.
        """
        is_open = self.state.mode is Mode.LOCATING and self.state.offset in COMMITTED
        return is_open and self._question is question

    def note_log(self, log: LogBounds) -> None:
        """Take the ends of the log from a new answer."""
        self.log = log

    def note_topic(self, topic_id: Uuid | None) -> None:
        """Take the id of the topic from a feed. None changes nothing."""
        self.topic_id = topic_id or self.topic_id

    def note_success(self) -> None:
        """Note that the store has given records of the partition."""
        self._circuit = self._circuit.worked()

    def note_failure(self, reason: str, now_s: float) -> float:
        """Note that the store failed to give records. Returns when to try it again, in seconds of the clock."""
        self._circuit = self._circuit.failed(reason, now_s)
        return self._circuit.retry_at_s

    # ---------------------------------------------------------------------------------------- the position ends

    def forget_position(self) -> None:
        """Forget the position, because the application goes on elsewhere. `consume` drops the messages it holds."""
        self.stored.keep_delivered()
        self.position.forget()

    def enter_elsewhere(self, step: Step) -> None:
        """As `enter`, and `forget_position`."""
        self.forget_position()  # no handler of a signal runs between this and the next line
        self.state, self.undone = step[0], self.undone + step[1]

    def enter_before_held(self, step: Step) -> None:
        """As `enter`, and go back before the messages that a running `consume` holds. It drops them."""
        self.stored.keep_delivered()
        self.position.give_back()  # no handler of a signal runs between this and the next line
        self.state, self.undone = step[0], self.undone + step[1]

    def reset_position(self) -> None:
        """Forget the position, because it is not in the log any more. `consume` returns the messages it holds."""
        self.stored.keep(self.position.next_offset)
        self.position.reset()

    # -------------------------------------------------------------------------------------------- records of the store

    @property
    def awaits_store(self) -> bool:
        """Whether a feed may bring records of the store, or its ending, at any time."""
        return self.feed is not None or self.state.mode is Mode.LOCATING

    @property
    def is_found(self) -> bool:
        """Whether the store has given a record of the partition. It may have been delivered already."""
        return self.records.are_ready or self.position.next_offset >= 0

    @property
    def follows_librdkafka(self) -> bool:
        """Whether librdkafka's position is the application's: it reads, and no `consume` holds messages."""
        return self.state.is_fetched and not self.position.is_held

    def take_over(self, found: TopicPartition) -> Step:
        """Go on in the store at librdkafka's position. If librdkafka has none, go on where librdkafka began."""
        if found.offset >= 0:
            self.position.follow(found.offset, found.leader_epoch)
        offset = found.offset if found.offset >= 0 else self.state.offset
        self.records.skip(offset)
        self.note_success()
        return self.state.taken_over(offset)

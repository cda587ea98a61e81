"""Asks partition leaders whether they still have the log of a leader epoch: many partitions at once, by one consumer.

librdkafka compares an offset and its leader epoch with the log (OffsetForLeaderEpoch, KIP-320) at a seek. At an
assignment it does so only if it does not know the leader yet (2.16). The questions of several threads share one
assignment.

Rules of the file:

- One thread at a time drives the consumer. It takes the questions of all threads that wait, new ones too while it
  waits for answers. A leader that does not answer holds up only its own question.
- librdkafka takes a second to learn about a new topic, so the driver asks for the topic's metadata first.
- A record that comes before the seek is no answer: librdkafka fetches as soon as a partition is assigned.
- A question without an answer in time has the answer no. Errors of the broker go to the thread that asked.
- A consumer that was answered before and is not answered soon is replaced: it stays with a leader that hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from remote_fetch.deadline import Deadline
from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate.clients import Clients
from remote_fetch.locate.slices import LEADER_LOOKUP_S, ONE_ANSWER_S, Newcomer
from remote_fetch.model import TopicIdPartition

__all__ = ["EpochProber"]

_POLL_S = 0.1
_SEEK_AGAIN_S = 0.005
_TURN_S = 0.02


@dataclass(slots=True, eq=False)
class _Question:
    """Whether the log of a partition still holds an offset of a leader epoch. `answer` None: not known yet.

    `is_compared`: librdkafka compares the epoch with the log, or has done so.
    """

    wanted: TopicPartition
    deadline_s: float
    is_compared: bool = False
    answer: bool | None = None
    error: KafkaException | None = None
    is_done: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> tuple[str, int]:
        return self.wanted.topic, self.wanted.partition

    def end(self, answer: bool, error: KafkaException | None = None) -> None:
        """Give the answer to the thread that asked."""
        self.answer, self.error = answer, error
        self.is_done.set()


class EpochProber:
    """Asks through the `prober` of `clients`. Thread-safe."""

    def __init__(self, clients: Clients, *, timeout_s: float) -> None:
        self._clients = clients
        self._newcomer = Newcomer()
        self._timeout_s = timeout_s
        self._turn = threading.Lock()  # for the consumer and `_known_topics`
        self._lock = threading.Lock()  # for `_waiting`
        self._waiting: list[_Question] = []
        self._known_topics: set[str] = set()

    def holds(self, partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        """Whether the leader has the log up to `end_offset` (exclusive), whose last record is of `leader_epoch`.

        Also False if no broker confirms it in time. Raises KafkaException with the broker's error.
        """
        wanted = TopicPartition(partition.topic, partition.partition, end_offset, leader_epoch=leader_epoch)
        question = _Question(wanted, time.monotonic() + self._timeout_s)
        with self._lock:
            self._waiting.append(question)
        while not question.is_done.is_set():
            if self._turn.acquire(blocking=False):
                try:
                    self._drive(question)
                finally:
                    self._turn.release()
            else:
                question.is_done.wait(_TURN_S)
        if question.error is not None:
            raise question.error
        return bool(question.answer)

    def _drive(self, own: _Question) -> None:
        """Answer questions until `own` has its answer. The next thread takes the remaining questions."""
        asked: dict[tuple[str, int], _Question] = {}
        if own.is_done.is_set():
            return
        try:
            consumer = self._clients.prober()
        except BaseException:
            with self._lock:
                self._waiting = [question for question in self._waiting if question is not own]
            raise
        turn = self._newcomer.turn(consumer, min(ONE_ANSWER_S, self._timeout_s))
        silence = Deadline.after(turn.slice_s)
        try:
            while not own.is_done.is_set():
                self._clients.prober()  # raises after a close, which has to wait for each poll until none follows
                if turn.is_last and silence.is_over:
                    self._newcomer.note_silence(turn)
                    consumer = self._replaced(consumer, asked)
                    turn = self._newcomer.turn(consumer, turn.slice_s)
                self._take(consumer, asked)
                message = consumer.poll(_POLL_S if _compare(consumer, asked) else _SEEK_AGAIN_S)
                if message is not None and _heed(message, asked):
                    self._newcomer.note_answer(turn)
                    self._clients.answered()
                now_s = time.monotonic()
                for question in [question for question in asked.values() if question.deadline_s <= now_s]:
                    del asked[question.key]
                    question.end(False)
        finally:
            with self._lock:
                left = [question for question in asked.values() if question is not own]
                self._waiting = [*left, *(question for question in self._waiting if question is not own)]
            with suppress(RuntimeError):  # it may be closed
                consumer.unassign()

    def _replaced(self, consumer: Consumer, asked: dict[tuple[str, int], _Question]) -> Consumer:
        """Another consumer. All questions that have no answer yet wait for it."""
        consumer.unassign()
        self._clients.replace(consumer)
        with self._lock:
            self._waiting = [*asked.values(), *self._waiting]
        asked.clear()
        self._known_topics.clear()
        return self._clients.prober()

    def _take(self, consumer: Consumer, asked: dict[tuple[str, int], _Question]) -> None:
        """Assign the partitions of new questions too. A second question about a partition waits for the first."""
        with self._lock:
            fresh = {question.key: question for question in reversed(self._waiting) if question.key not in asked}
            self._waiting = [question for question in self._waiting if fresh.get(question.key) is not question]
        if not fresh:
            return
        for topic in {question.wanted.topic for question in fresh.values()} - self._known_topics:
            try:
                consumer.list_topics(topic, timeout=min(LEADER_LOOKUP_S, self._timeout_s))
            except KafkaException:
                continue  # the assignment meets the same error and reports it
            self._known_topics.add(topic)
        asked.update(fresh)
        consumer.assign([question.wanted for question in asked.values()])
        for question in asked.values():
            question.is_compared = False


def _compare(consumer: Consumer, asked: Mapping[tuple[str, int], _Question]) -> bool:
    """Let librdkafka compare the epochs of all questions. False: it has not assigned some partitions yet."""
    for question in asked.values():
        if not question.is_compared:
            with suppress(KafkaException):  # the next round asks again, until the deadline of the question
                consumer.seek(question.wanted)
                question.is_compared = True
    return all(question.is_compared for question in asked.values())


def _heed(message: Message, asked: dict[tuple[str, int], _Question]) -> bool:
    """End the question that a message of the consumer answers. Return whether a leader has answered."""
    topic, number = message.topic(), message.partition()
    question = None if topic is None or number is None else asked.get((topic, number))
    error = message.error()
    if error is not None and error.fatal():
        for each in asked.values():
            each.end(False, KafkaException(error))
        asked.clear()
        return False
    if question is None:
        return False
    # librdkafka has fetched a record or the end of the log. If that was after the seek, it has found the epoch valid.
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        if not question.is_compared:
            return False
        question.end(True)
    elif error.code() == KafkaError._AUTO_OFFSET_RESET:
        question.end(False)
    elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        question.end(False, KafkaException(error))
    else:
        return False
    del asked[question.key]
    return True

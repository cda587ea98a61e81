"""Writes transactions of several producers at the same time: mixed, committed, aborted, or left open.

Rules of the file:

- A seed decides the writes.
- Every producer is closed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.rig.rig import Rig
from tests.rig.topics import QUIET, admin, produce_one

__all__ = ["OpenTransaction", "interleaved_transactions", "open_transaction", "wait_decided"]

_TIMEOUT_S = 150
_SIZES = (0, 24, 200, 700)
_TRANSACTION_TIMEOUT_MS = 600_000
"""So long that the broker aborts no transaction, also on a slow machine."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that its producer has begun and not ended."""

    producer: Producer
    topic: str
    partition: int
    dice: random.Random
    is_open: bool = True
    written: int = 0

    def write(self, count: int) -> None:
        """Write records and wait until the broker has them."""
        for _ in range(count):
            produce_one(self.producer, self.topic, self.partition, self.written, self.dice, _SIZES)
            self.written += 1
        left = self.producer.flush(_TIMEOUT_S)
        if left:
            raise TimeoutError(f"{left} records were not delivered to {self.topic}-{self.partition}")

    def end(self, *, commit: bool) -> None:
        """Commit or abort. The broker writes the marker a little later."""
        self.is_open = False
        (self.producer.commit_transaction if commit else self.producer.abort_transaction)(_TIMEOUT_S)


def _begin(producer: Producer, topic: str, partition: int, seed: int) -> OpenTransaction:
    producer.begin_transaction()
    return OpenTransaction(producer, topic, partition, random.Random(seed))


def _transactional_producer(rig: Rig, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": rig.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
            "batch.num.messages": 5,
            **QUIET,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    return producer


@contextmanager
def open_transaction(
    rig: Rig, topic: str, count: int, *, partition: int = 0, transactional_id: str | None = None, seed: int = 0
) -> Iterator[OpenTransaction]:
    """A transaction with `count` records. The block may end it. If it does not, it is aborted after the block."""
    producer = _transactional_producer(rig, transactional_id or f"open-{topic}-{partition}")
    transaction = _begin(producer, topic, partition, seed)
    try:
        transaction.write(count)
        yield transaction
    finally:
        if transaction.is_open:
            with suppress(KafkaException):  # the block's own error matters more
                transaction.end(commit=False)


def interleaved_transactions(
    rig: Rig,
    topic: str,
    outcomes: Sequence[bool],
    *,
    partition: int = 0,
    producers: int = 3,
    rounds: int = 6,
    seed: int = 0,
) -> None:
    """One transaction for each of `outcomes` (whether it commits), up to `producers` of them open at a time.

    The open transactions write in turn, a few records in each round. Then they end in a random order, so that markers
    lie apart from each other and from their records.
    """
    dice = random.Random(seed)
    writers = [_transactional_producer(rig, f"{topic}-{partition}-{number}") for number in range(producers)]
    for start in range(0, len(outcomes), producers):
        pairs = zip(writers, outcomes[start : start + producers], strict=False)
        under_way = [(_begin(writer, topic, partition, dice.randrange(2**32)), commits) for writer, commits in pairs]
        for _ in range(rounds):
            for transaction, _ in under_way:
                transaction.write(dice.randint(1, 8))
        dice.shuffle(under_way)
        while under_way:
            ended, commits = under_way.pop()
            ended.end(commit=commits)
            # The open transactions write between the markers.
            for transaction, _ in under_way:
                transaction.write(dice.randint(0, 8))


def wait_decided(rig: Rig, topic: str, partition: int = 0) -> None:
    """Wait until the broker has written the markers of all transactions. All of them have to be ended before."""
    client, wanted = admin(rig), TopicPartition(topic, partition)

    def latest(isolation: IsolationLevel) -> int:
        asked = client.list_offsets({wanted: OffsetSpec.latest()}, isolation_level=isolation)  # type: ignore[no-untyped-call]
        return int(asked[wanted].result(_TIMEOUT_S).offset)

    rig.until(
        f"the markers of {topic}-{partition}",
        lambda: latest(IsolationLevel.READ_COMMITTED) == latest(IsolationLevel.READ_UNCOMMITTED),
    )

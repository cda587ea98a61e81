"""Makes the writes of a random workload: batches of records of every shape, and transactions that stay open a while.

Rules of the file:

- The random generator decides the writes.
- Every wait has a deadline.
- A batch that a broker refuses for its size is counted. Other refusals are errors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.rig.rig import Rig
from tests.rig.topics import QUIET
from tests.rig.workload_oracle import Place, Times, log_ends

__all__ = ["PRODUCED_TIMES", "Transactions", "Written", "produce_batches"]

PRODUCED_TIMES = Times(1_700_000_000_000, 1_700_010_000_000)
"""The range of the producers' timestamps, which have no order."""

_TIMEOUT_S = 150
_TRANSACTION_TIMEOUT_MS = 600_000
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_SMALL_BYTES = (0, 0, 1, 24, 200, 400)
_LARGE_BYTES = (700, 2_000, 3_900, 7_000)
_COMPRESSIBLE_BYTES = (5_000, 60_000)
"""Sizes larger than a segment. Only a codec makes them fit, so the broker refuses some of them."""


@dataclass(slots=True)
class Written:
    """How many records a producer delivered, and how many were refused as too large."""

    delivered: int = 0
    refused: int = 0
    errors: list[KafkaError] = field(default_factory=list)

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """As `on_delivery`."""
        if error is None:
            self.delivered += 1
        elif error.code() in _TOO_LARGE:
            self.refused += 1
        else:
            self.errors.append(error)

    def check(self, left: int) -> None:
        """Raise the error of a record that was neither delivered nor refused for its size.

        `left` comes from `flush`.
        """
        if self.errors:
            raise KafkaException(self.errors[0])
        if left:
            raise TimeoutError(f"{left} records were not delivered")


def produce_batches(rig: Rig, place: Place, dice: random.Random) -> tuple[str, Written]:
    """Write some records to one partition with a new producer. Returns a description, and the numbers of records."""
    codec, idempotent = dice.choice(_CODECS), dice.random() < 0.4
    batch_records, count = dice.choice((1, 3, 7, 50)), dice.choice((1, 5, 20, 60))
    batch_bytes = dice.choice((2_000, 7_500, 7_500, 1_000_000))
    sizes: Sequence[int] = dice.choice((_SMALL_BYTES, (*_SMALL_BYTES, *_LARGE_BYTES), _LARGE_BYTES))
    producer = Producer(
        {
            "bootstrap.servers": rig.bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "batch.num.messages": batch_records,
            "batch.size": batch_bytes,
            "linger.ms": 5,
            **QUIET,
        }
    )
    written = Written()
    for _ in range(count):
        _produce_one(producer, place, dice, sizes, written)
    if dice.random() < 0.3:
        _queue(producer, place, written, value=b"%d" % dice.randrange(9) * dice.choice(_COMPRESSIBLE_BYTES))
    written.check(producer.flush(_TIMEOUT_S))
    kind = " idempotent" if idempotent else ""
    return (
        f"{count} records {codec}{kind}, batches of {batch_records} or {batch_bytes} bytes, up to {max(sizes)} each",
        written,
    )


def _produce_one(producer: Producer, place: Place, dice: random.Random, sizes: Sequence[int], written: Written) -> None:
    size_bytes = dice.choice((None, *sizes))
    keys = (None, b"", dice.randbytes(8), "ключ".encode(), dice.randbytes(min(max(sizes), 2_000)))
    headers: tuple[list[tuple[str, bytes | None]], ...] = (
        [],
        [],
        [("a", b"1")],
        [("", b""), ("null", None), ("null", b"")],
        [("ключ", dice.randbytes(5)), ("dup", b"1"), ("dup", b"2"), ("large", bytes(200))],
    )
    _queue(
        producer,
        place,
        written,
        key=dice.choice(keys),
        value=None if size_bytes is None else dice.randbytes(size_bytes),
        headers=dice.choice(headers),
        timestamp=PRODUCED_TIMES.at(dice.random()),
    )


def _queue(producer: Producer, place: Place, written: Written, **record: Any) -> None:
    topic, partition = place
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            producer.produce(topic, partition=partition, on_delivery=written, **record)
            return
        except BufferError:
            producer.poll(0.1)
        except KafkaException as error:
            # The producer is older than the partition.
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or time.monotonic() > deadline_s:
                raise
            producer.list_topics(topic, timeout=_TIMEOUT_S)


@dataclass(slots=True)
class _Open:
    """An open transaction. `places` are the partitions to which it has written."""

    producer: Producer
    places: set[Place] = field(default_factory=set)


class Transactions:
    """The transactions of one run. Each has one of a few transactional ids, so that ids are used again."""

    def __init__(self, rig: Rig, name: str) -> None:
        self._rig = rig
        self._name = name
        self._idle: dict[int, Producer] = {}
        self._open: dict[int, _Open] = {}

    @property
    def numbers(self) -> tuple[int, ...]:
        """The transactions that are open."""
        return tuple(sorted(self._open))

    def places(self) -> set[Place]:
        """The partitions that an open transaction has written to."""
        return {place for one in self._open.values() for place in one.places}

    def begin(self, number: int) -> None:
        """Begin a transaction with the transactional id of that number, which has none open."""
        producer = self._idle.pop(number, None) or self._producer(number)
        producer.begin_transaction()
        self._open[number] = _Open(producer)

    def write(self, number: int, place: Place, dice: random.Random) -> int:
        """Write some small records and wait for their delivery. Returns how many."""
        transaction = self._open[number]
        count, written = dice.choice((1, 3, 10, 25)), Written()
        for _ in range(count):
            _produce_one(transaction.producer, place, dice, _SMALL_BYTES, written)
        transaction.places.add(place)
        written.check(transaction.producer.flush(_TIMEOUT_S))
        return count

    def end(self, number: int, how: str) -> None:
        """End it by `commit`, by `abort`, or by `fence` (a new producer with its id). Waits for the markers."""
        transaction = self._open.pop(number)
        before = self._log_ends(transaction.places)
        if how == "fence":
            self._idle[number] = self._producer(number)
        else:
            producer = self._idle[number] = transaction.producer
            (producer.commit_transaction if how == "commit" else producer.abort_transaction)(_TIMEOUT_S)
        wanted = {place: end + 1 for place, end in before.items()}
        self._rig.until("the transaction's markers", lambda: self._log_ends(transaction.places) == wanted)

    def _log_ends(self, places: Collection[Place]) -> dict[Place, int]:
        return {place: ends.stop for place, ends in log_ends(self._rig, places, "read_uncommitted").items()}

    def _producer(self, number: int) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._rig.bootstrap,
                "transactional.id": f"{self._name}-{number}",
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "compression.type": _CODECS[number % len(_CODECS)],
                "batch.num.messages": 4,
                **QUIET,
            }
        )
        producer.init_transactions(_TIMEOUT_S)
        return producer

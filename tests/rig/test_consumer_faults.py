"""Failures of the store under a RemoteConsumer: each cause, at the start, in a segment and at the end of the tier.

Rules of the file:

- For every failure the application gets the records that a consumer of the broker gets.
- The broker serves during the failure, and the reason is counted. After the failure the store is read again.
- Every reason has a row, or is listed as impossible here with the place of its proof.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from remote_fetch.errors import (
    ErrorKind,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
    UnsupportedFormat,
)
from remote_fetch.model import Buffer, IndexType
from remote_fetch.testing.faults import FetchCall
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.consumer_faults import Delivered, Meddle, Place, Spot, broken_store, spot_of
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATIONS, config_of, mixed_topic
from tests.rig.topics import OracleRecord

TIMEOUT_MS = 700
RETRY = {"fetch.remote.retry.backoff.ms": 20}
"""After the first failure the storage is not used for a fifth of a second."""
IMPATIENT = {"fetch.remote.read.timeout.ms": TIMEOUT_MS}
PATIENT = {"fetch.remote.read.timeout.ms": 60_000}
"""For errors that come at once. With it no GET is late, also on a slow machine."""
PASSING = (ErrorKind.THROTTLED, ErrorKind.UNAVAILABLE)
"""Errors that are retried until the deadline. A range that waits for a thread in that time becomes late too."""
EPOCH_BYTE, MAGIC_BYTE, RECORDS_BYTE = 12, 16, 70
TAIL = 12
_MOST_RETURNS = 5
"""How often a consumer begins again until the store has a record in time. On a machine that is not busy it is once."""

Fault = Callable[[Spot], Meddle]


def strikes(answer: Callable[[bytes, int], bytes], at_byte: int = 0) -> Fault:
    """Replace the answer to a GET that has the batch's byte `at_byte`.

    `answer` also gets the place of that byte in it.
    """

    def fault(spot: Spot) -> Meddle:
        position = spot.position + at_byte

        def meddle(call: FetchCall, data: Buffer | None) -> Buffer | None:
            is_meant = call.index_type is None and call.metadata.start_offset == spot.segment_start
            if data is None or not is_meant or not 0 <= position - call.start_position < len(data):
                return data
            return answer(bytes(data), position - call.start_position)

        return meddle

    return fault


def raises(error: type[RemoteFetchError], kind: ErrorKind | None = None) -> Fault:
    def answer(data: bytes, at: int) -> bytes:
        raised = error("injected")
        if kind is not None:
            vars(raised)["kind"] = kind
        raise raised

    return strikes(answer)


def stalls(data: bytes, at: int) -> bytes:
    time.sleep(3 * TIMEOUT_MS / 1000)
    return data


def differs(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]


def index_becomes(index_type: IndexType, content: bytes | None) -> Fault:
    return lambda spot: lambda call, data: content if call.index_type is index_type else data


def fails(data: bytes, at: int) -> bytes:
    raise ZeroDivisionError


@dataclass(frozen=True, slots=True)
class Row:
    """One cause of a failure, and the reason under which its fallback is counted (None: no fallback).

    `begins_there`: the fault concerns only the begin of a read, so the read begins at its place, and not at the start.
    """

    name: str
    reason: str | None
    fault: Fault
    config: Mapping[str, Any] = field(default_factory=dict)
    begins_there: bool = False
    isolations: tuple[str, ...] = ISOLATIONS


COMMITTED = ("read_committed",)
INDEXES: tuple[tuple[str, ErrorKind | None, Fault, tuple[str, ...]], ...] = (
    ("corrupt transaction index", ErrorKind.CORRUPT, index_becomes(IndexType.TRANSACTION, bytes(33)), COMMITTED),
    ("corrupt producer snapshot", ErrorKind.CORRUPT,
     index_becomes(IndexType.PRODUCER_SNAPSHOT, b"\x00\x01" + b"\xff" * 32), COMMITTED),
    ("no producer snapshot", ErrorKind.UNLOCATABLE, index_becomes(IndexType.PRODUCER_SNAPSHOT, None), COMMITTED),
    ("no offset index", None, index_becomes(IndexType.OFFSET, None), ISOLATIONS),
    ("corrupt offset index", None, index_becomes(IndexType.OFFSET, b"\xff" * 16), ISOLATIONS),
)  # fmt: skip
ROWS = (
    Row("read timeout", ErrorKind.READ_TIMEOUT, strikes(stalls), IMPATIENT),
    Row("connect timeout", ErrorKind.CONNECT_TIMEOUT, raises(StorageTimeout, ErrorKind.CONNECT_TIMEOUT)),
    Row("401, 403 or an expired URL", ErrorKind.AUTH, raises(StorageDenied)),
    Row("object gone", ErrorKind.NOT_FOUND, raises(SegmentNotFound)),
    Row("format of the store", ErrorKind.FORMAT, raises(UnsupportedFormat)),
    Row("format of a batch", ErrorKind.FORMAT, strikes(differs, MAGIC_BYTE)),
    Row("corrupt bytes", ErrorKind.CORRUPT, strikes(differs, RECORDS_BYTE)),
    Row("cut object", ErrorKind.CORRUPT, strikes(lambda data, at: data[:at], RECORDS_BYTE)),
    Row("epoch mismatch", ErrorKind.TRUNCATED, strikes(differs, EPOCH_BYTE)),
    Row("throttled", ErrorKind.THROTTLED, raises(StorageThrottled), IMPATIENT),
    Row("unavailable", ErrorKind.UNAVAILABLE, raises(StorageUnavailable), IMPATIENT),
    Row("a bug in the fetcher", "error", strikes(fails)),
    *(
        Row(name, reason, fault, begins_there=True, isolations=isolations)
        for name, reason, fault, isolations in INDEXES
    ),
)


@dataclass(frozen=True, slots=True)
class Material:
    """A topic with every codec, and committed and aborted transactions. All is in the tier, except for a local tail."""

    topic: str
    end: topics.Offsets
    spots: Mapping[Place, Spot]
    records: Mapping[str, list[OracleRecord]]

    @classmethod
    def make(cls, rig: Rig, topic: str) -> Material:
        mixed_topic(rig, topic)
        topics.set_config(rig, topic, local_retention_ms=-2)
        topics.produce(rig, topic, TAIL, seed=77, sizes=(300, 400))
        return cls(
            topic,
            topics.offsets(rig, topic, 0),
            {place: spot_of(rig, topic, place) for place in Place},
            {isolation: topics.broker_records(rig, topic, 0, isolation) for isolation in ISOLATIONS},
        )


@pytest.fixture(scope="module")
def material() -> Callable[[Rig], Material]:
    """Makes this module's topic on a rig."""
    made: dict[str, Material] = {}

    def material_of(rig: Rig) -> Material:
        if rig.version not in made:
            made[rig.version] = Material.make(rig, "consumer-faults")
        return made[rig.version]

    return material_of


def cells() -> list[Any]:
    """Every row at every place. In the middle of a segment it has both isolation levels, elsewhere one of them.

    A change proves each row in the middle, and in turn at the start or at the hand-over. It proves one level of a
    place: a fault concerns bytes, and both levels read the same bytes.
    """
    shown = {Place.START: ISOLATIONS[:1], Place.MIDDLE: ISOLATIONS, Place.HAND_OVER: ISOLATIONS[1:]}
    ends = itertools.cycle((Place.START, Place.HAND_OVER))
    kept = {(row.name, place) for row in ROWS for place in (Place.MIDDLE, next(ends))}
    of_one_level = _cells({**shown, Place.MIDDLE: ISOLATIONS[:1]})
    return of_a_change(_cells(shown), *(cell for cell in of_one_level if (cell[0].name, cell[1]) in kept))


def _cells(shown: Mapping[Place, Sequence[str]]) -> list[tuple[Row, Place, str]]:
    """Every row at every place, with the levels that are shown there. A row of one level has that one."""
    return [
        (row, place, level)
        for row in ROWS
        for place in Place
        for level in row.isolations
        if level in shown[place] or len(row.isolations) == 1
    ]


def _name(value: Row | Place | str) -> str:
    return value.name if isinstance(value, Row) else str(value)


def allowed_reasons(row: Row) -> set[str]:
    """The reasons of fallbacks. A fault that passes is retried, on a busy machine until the read's own time is up."""
    if row.reason is None:
        return set()
    return {row.reason, ErrorKind.READ_TIMEOUT} if row.reason in PASSING else {row.reason}


@pytest.mark.parametrize(("row", "place", "isolation"), cells(), ids=_name)
def test_the_stream_is_the_brokers_and_the_store_is_come_back_to(
    rig_43: Rig, material: Callable[[Rig], Material], row: Row, place: Place, isolation: str
) -> None:
    found = material(rig_43)
    topic, end, spot = found.topic, found.end, found.spots[place]
    start = spot.base_offset if row.begins_there else 0
    expected = [one for one in found.records[isolation] if one.offset >= start]
    with broken_store(row.fault(spot)) as (config, switch):
        configuration = {**config_of(rig_43), **RETRY, **PATIENT, **row.config, **config, "isolation.level": isolation}
        with Delivered.by(configuration, topic, start) as delivered:
            delivered.until(lambda: any(delivered.through_broker))
            reasons = delivered.reasons
            first = delivered.records[delivered.through_broker.index(True)].offset
            switch.is_on = False
            delivered.to_the_end(end.latest)
            assert delivered.records == expected
            assert reasons <= allowed_reasons(row)
            assert reasons or row.reason is None
            if row.reason is None:
                assert first >= end.earliest_local
                return
            assert first < end.earliest_local or place is Place.HAND_OVER
            rest = delivered.through_broker[delivered.through_broker.index(True) :]
            for _ in range(_MOST_RETURNS if all(rest) else 0):
                # Too few records were left to return to the store, so the consumer begins again.
                delivered.seek(topic, 0)
                delivered.to_the_end(end.latest)
                assert delivered.records == found.records[isolation]
                if not all(rest := delivered.through_broker):
                    break
            assert not all(rest)

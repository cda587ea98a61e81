"""Runs go on behind transaction markers, natively and in plain Python, except where plain Python has to decide.

Rules of the file: every test runs with each decoder, as in `test_run_decoder`.
"""

from __future__ import annotations

from types import ModuleType

from remote_fetch.decode.run_status import RunStatus
from remote_fetch.testing.records import HEADER_BYTES, encode_marker, encode_varint
from tests.cases import each_of
from tests.decode.test_run_decoder import LAST, batch, column, of, read, with_area


def marker_with(area: bytes, count: int = 1) -> bytes:
    """A control batch of producer 7 at offset 2 with these records."""
    return with_area(area, count, whole=encode_marker(2, 7, commit=True))


def control(record: bytes) -> bytes:
    """A control batch of producer 7 at offset 2 with this record behind its length."""
    return marker_with(encode_varint(len(record)) + record)


def test_the_producers_of_markers_and_what_was_shown_since(engine: ModuleType) -> None:
    batches = [
        of(0, 7), of(2, 8), encode_marker(4, 7, commit=True),
        of(5, 9), encode_marker(7, 9, commit=False),
        of(8, 7), of(10, 7), encode_marker(12, 6, commit=True), LAST,
    ]  # fmt: skip
    run = read(engine, batches, aborted=[(9, 5, 7)])
    assert (column(run, "offset"), run.taken, run.status) == ([0, 1, 2, 3, 8, 9, 10, 11], 8, RunStatus.END)
    assert (run.ended_producers, run.shown) == ({6, 7, 9}, {7: 8, 8: 2})
    everything = read(engine, batches)
    assert (everything.taken, everything.ended_producers, everything.shown) == (8, set(), {})


def test_an_abort_that_no_index_tells_of_ends_the_run(engine: ModuleType) -> None:
    """Whether records of it were delivered is known only to the caller."""
    abort = encode_marker(4, 7, commit=False)
    for aborted in ([], [(7, 0, 3)], [(7, 0, 5)], [(7, 5, 9)], [(8, 0, 4)], [(6, 0, 4), (7, 0, 9)]):
        run = read(engine, [batch(0), of(2, 5), abort, LAST], aborted=aborted)
        assert (run.status, run.taken, run.ended_producers, run.shown) == (RunStatus.SPECIAL, 2, set(), {5: 2}), aborted
    run = read(engine, [batch(0), of(2, 5), abort, LAST], aborted=[(7, 0, 1), (7, 2, 4), (7, 6, 9), (8, 0, 9)])
    assert (run.status, run.taken, run.ended_producers) == (RunStatus.END, 3, {7})


def test_a_marker_before_the_wanted_offsets_is_passed_over(engine: ModuleType) -> None:
    batches = [encode_marker(4, 7, commit=False), encode_marker(5, 8, commit=True), of(6, 8), LAST]
    run = read(engine, batches, aborted=[], first_offset=5)
    assert (run.taken, run.ended_producers, run.shown) == (3, {8}, {8: 6})


KEY = (0).to_bytes(2, "big") + (1).to_bytes(2, "big")
HEAD = bytes([0, 0, 0])
"""Attributes and two deltas."""
ENDS = {
    "commit": control(HEAD + encode_varint(4) + KEY),
    "a longer key": control(HEAD + encode_varint(6) + KEY + b"ab"),
    "a value and more": control(HEAD + encode_varint(4) + KEY + bytes(9)),
    "another version": control(HEAD + encode_varint(4) + b"\x7f\xff\0\1"),
    "two records": marker_with((encode_varint(8) + HEAD + encode_varint(4) + KEY) * 2, 2),
    "long numbers": control(b"\0" + b"\xff" * 9 + b"\x7f" + b"\xff" * 4 + b"\x7f" + b"\x88\x80\x80\x80\0" + KEY),
}
ENDS_NOTHING = {
    "no record": marker_with(b"", 0),
    "a change of the leader": control(HEAD + encode_varint(4) + b"\0\0\0\2"),
    "an unknown type": control(HEAD + encode_varint(4) + b"\0\0\x7f\0"),
    "a negative type": control(HEAD + encode_varint(4) + b"\0\0\xff\xff"),
}
MALFORMED = {
    "no area": marker_with(b""),
    "no bytes of a record": marker_with(encode_varint(0)),
    "a record of negative length": marker_with(encode_varint(-3) + bytes(9)),
    "a record past the batch": marker_with(encode_varint(20) + HEAD + encode_varint(4) + KEY),
    "attributes alone": control(b"\0"),
    "no key": control(HEAD + encode_varint(-1)),
    "a short key": control(HEAD + encode_varint(3) + KEY),
    "a key past the record": control(HEAD + encode_varint(5) + KEY),
    "a negative version": control(HEAD + encode_varint(4) + b"\xff\xff\0\1"),
    "a length without end": marker_with(b"\xff" * 5 + b"\0" * 9),
    "a timestamp without end": control(b"\0" + b"\xff" * 10 + b"\0" * 9),
    "an offset without end": control(b"\0\0" + b"\xff" * 5 + b"\0" * 9),
    "a key length without end": control(HEAD + b"\xff" * 5 + b"\0" * 9),
}


@each_of("name", ENDS)
def test_a_marker_that_ends_a_transaction(engine: ModuleType, name: str) -> None:
    run = read(engine, [of(0, 7), ENDS[name], LAST], aborted=[])
    assert (run.status, run.taken, run.ended_producers, run.shown) == (RunStatus.END, 2, {7}, {})


@each_of("name", ENDS_NOTHING)
def test_a_control_batch_that_ends_no_transaction(engine: ModuleType, name: str) -> None:
    run = read(engine, [of(0, 7), ENDS_NOTHING[name], LAST], aborted=[])
    assert (run.status, run.taken, run.ended_producers, run.shown) == (RunStatus.END, 2, set(), {7: 0})


@each_of("name", MALFORMED)
def test_a_malformed_marker_ends_the_run(engine: ModuleType, name: str) -> None:
    run = read(engine, [of(0, 7), MALFORMED[name], LAST], aborted=[])
    assert (run.status, run.taken, run.ended_producers, run.shown) == (RunStatus.SPECIAL, 1, set(), {7: 0})
    passed = read(engine, [MALFORMED[name], LAST], aborted=[], first_offset=3)
    assert (passed.status, passed.taken) == (RunStatus.END, 1), "nothing of it is looked at"


def test_the_checksum_of_a_marker_is_looked_at_first(engine: ModuleType) -> None:
    damaged = bytearray(encode_marker(2, 7, commit=True))
    damaged[HEADER_BYTES + 5] ^= 0xFF
    run = read(engine, [of(0, 7), bytes(damaged), LAST], aborted=[])
    assert (run.status, run.taken) == (RunStatus.BAD_CHECKSUM, 1)


def test_records_of_one_producer_in_many_transactions(engine: ModuleType) -> None:
    batches = [part for at in range(0, 90, 3) for part in (of(at, 7), encode_marker(at + 2, 7, commit=True))]
    run = read(engine, [*batches, LAST], aborted=[], columns=["offset"])
    assert column(run, "offset") == [at for at in range(90) if at % 3 != 2]
    assert (run.taken, run.ended_producers, run.shown) == (60, {7}, {})

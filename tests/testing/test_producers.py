"""Producer state: what each kind of batch does to it, and the bytes of a snapshot."""

from __future__ import annotations

import struct
from dataclasses import replace

from crc32c import crc32c

from remote_fetch.model import AbortedTransaction
from remote_fetch.testing.producers import EndMarker, ProducerState, ProducerStates, WrittenBatch

DATA = WrittenBatch(b"x", 10, 13, 1000, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
ABORT = replace(
    DATA, base_offset=14, last_offset=14, max_timestamp_ms=2000, base_sequence=-1, marker=EndMarker(False, 3)
)
COMMIT = replace(ABORT, marker=EndMarker(True, 3))


def after(*batches: WrittenBatch) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        states.apply(batch)
    return states


def test_batches_without_a_producer_leave_no_state() -> None:
    assert list(after(WrittenBatch(b"x", 0, 0))) == []


def test_an_unknown_producer_has_a_blank_state() -> None:
    assert ProducerStates().get(5) == ProducerState(5, 0)


def test_data_opens_the_transaction_at_its_first_batch() -> None:
    second = replace(DATA, base_offset=14, last_offset=15, base_sequence=4, max_timestamp_ms=1001)
    assert list(after(DATA, second)) == [ProducerState(5, 0, 5, 15, 1, 1001, -1, 10)]


def test_an_idempotent_batch_opens_none() -> None:
    states = after(replace(DATA, transactional=False))
    assert states.get(5).current_txn_first_offset == -1
    assert states.first_open_offset is None


def test_sequences_start_over_after_their_largest() -> None:
    assert after(replace(DATA, base_sequence=2**31 - 2)).get(5).last_sequence == 1


def test_a_batch_without_a_sequence_has_none() -> None:
    assert after(replace(DATA, base_sequence=-1)).get(5).last_sequence == -1


def test_a_marker_ends_the_transaction_and_keeps_the_sequences() -> None:
    assert list(after(DATA, COMMIT)) == [ProducerState(5, 0, 3, 13, 3, 2000, 3, -1)]


def test_a_marker_with_a_higher_epoch_forgets_the_sequences() -> None:
    bumped = after(DATA, replace(COMMIT, producer_epoch=1))
    assert list(bumped) == [ProducerState(5, 1, -1, -1, 0, 2000, 3, -1)]


class TestTransactionIndexEntry:
    def test_only_an_abort_has_one(self) -> None:
        states = after(DATA)
        assert states.apply(COMMIT) is None
        assert after(DATA).apply(ABORT) == AbortedTransaction(5, 10, 14, 15)

    def test_an_abort_of_nothing_has_none(self) -> None:
        assert ProducerStates().apply(ABORT) is None

    def test_the_last_stable_offset_is_the_start_of_the_earliest_open_transaction(self) -> None:
        others = [replace(DATA, producer_id=6, base_offset=12), replace(DATA, producer_id=7, base_offset=11)]
        assert after(DATA, *others).apply(ABORT) == AbortedTransaction(5, 10, 14, 11)


def test_the_first_open_offset_is_the_smallest() -> None:
    assert after(DATA, replace(DATA, producer_id=6, base_offset=8)).first_open_offset == 8


def test_an_empty_snapshot() -> None:
    # As brokers write it: the checksum covers the count alone.
    assert ProducerStates().snapshot() == bytes.fromhex("000148674bc700000000")


def test_a_snapshot_has_its_entries_by_producer_id() -> None:
    data = after(replace(DATA, producer_id=6), DATA).snapshot()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, crc, count) == (1, crc32c(data[6:]), 2)
    assert list(struct.iter_unpack(">qhiqiqiq", data[10:])) == [
        (5, 0, 3, 13, 3, 1000, -1, 10),
        (6, 0, 3, 13, 3, 1000, -1, 10),
    ]

"""The oracle: small histories whose answer can be seen at a glance."""

from __future__ import annotations

import pytest

from remote_fetch.model import IsolationLevel, TimestampType
from remote_fetch.testing.oracle import LogRecord, Oracle, TxnOutcome

COMMITTED = IsolationLevel.READ_COMMITTED
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def write(oracle: Oracle, offset: int, producer_id: int = -1) -> None:
    txn = oracle.data(producer_id, offset)
    oracle.write([LogRecord(offset, 0, TimestampType.CREATE_TIME, None, None, producer_id=producer_id, txn=txn)])


@pytest.fixture
def oracle() -> Oracle:
    """Offsets 10 to 16: plain, A, B, abort A, B, A again (left open), commit B."""
    oracle = Oracle()
    write(oracle, 10)
    oracle.begin(1, 11)
    write(oracle, 11, 1)
    oracle.begin(2, 12)
    write(oracle, 12, 2)
    oracle.end(1, 13, commit=False)
    write(oracle, 14, 2)
    oracle.begin(1, 15)
    write(oracle, 15, 1)
    oracle.end(2, 16, commit=True)
    return oracle


def offsets(records: list[LogRecord]) -> list[int]:
    return [record.offset for record in records]


def test_outcomes(oracle: Oracle) -> None:
    none, committed, aborted, still_open = TxnOutcome
    assert none == "none"
    assert [r.outcome for r in oracle.records()] == [none, aborted, committed, committed, still_open]


def test_transactions_are_numbered(oracle: Oracle) -> None:
    assert [r.txn for r in oracle.records()] == [-1, 0, 1, 1, 2]


class TestStableOffset:
    @pytest.mark.parametrize(
        ("end_offset", "stable"), [(10, 10), (11, 11), (12, 11), (13, 11), (14, 12), (16, 12), (17, 15)]
    )
    def test_it_is_the_first_offset_of_the_earliest_open_one(
        self, oracle: Oracle, end_offset: int, stable: int
    ) -> None:
        assert oracle.stable_offset(end_offset) == stable

    def test_a_transaction_without_data_holds_nothing_back(self) -> None:
        oracle = Oracle()
        oracle.begin(1, 0)
        write(oracle, 0)
        assert oracle.stable_offset(1) == 1


class TestExpected:
    def test_read_uncommitted_sees_everything(self, oracle: Oracle) -> None:
        assert offsets(oracle.expected(UNCOMMITTED, 0, 99, end_offset=17)) == [10, 11, 12, 14, 15]

    def test_read_committed_ends_where_a_transaction_is_open(self, oracle: Oracle) -> None:
        assert offsets(oracle.expected(COMMITTED, 0, 99, end_offset=17)) == [10, 12, 14]

    def test_bounds_are_start_inclusive_and_stop_exclusive(self, oracle: Oracle) -> None:
        assert offsets(oracle.expected(UNCOMMITTED, 11, 14, end_offset=17)) == [11, 12]


class TestFork:
    def test_nothing_from_the_fork_on_has_happened(self, oracle: Oracle) -> None:
        other = oracle.fork(13)
        assert [r.outcome for r in other.records()] == [TxnOutcome.NONE, TxnOutcome.OPEN, TxnOutcome.OPEN]
        assert (other.is_open(1), other.is_open(2)) == (True, True)
        assert offsets(other.expected(COMMITTED, 0, 99, end_offset=13)) == [10]

    def test_earlier_outcomes_stay(self, oracle: Oracle) -> None:
        other = oracle.fork(15)
        assert (other.is_open(1), other.is_open(2)) == (False, True)
        assert other.records()[1].outcome is TxnOutcome.ABORTED

    def test_a_transaction_may_have_begun_and_have_no_data_yet(self) -> None:
        oracle = Oracle()
        oracle.begin(1, 0)
        write(oracle, 0)
        write(oracle, 1, 1)
        other = oracle.fork(1)
        assert other.is_open(1)
        assert other.stable_offset(1) == 1

    def test_the_two_go_their_own_ways(self, oracle: Oracle) -> None:
        other = oracle.fork(17)
        other.end(1, 17, commit=True)
        assert other.records()[-1].outcome is TxnOutcome.COMMITTED
        assert oracle.records()[-1].outcome is TxnOutcome.OPEN


class TestMisuse:
    @pytest.mark.parametrize("producer_id", [-1, 1])
    def test_begin(self, oracle: Oracle, producer_id: int) -> None:
        with pytest.raises(ValueError, match="cannot begin"):
            oracle.begin(producer_id, 17)

    def test_end(self, oracle: Oracle) -> None:
        with pytest.raises(ValueError, match="not in a transaction"):
            oracle.end(2, 17, commit=True)

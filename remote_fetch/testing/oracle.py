"""The contents of a log in plain Python: every record, every transaction, and the records that a broker would deliver.

Rules of the file:

- Pure, slow and simple.
- It knows no bytes, batches or indexes, only the calls that wrote the log. So it cannot share a mistake in a format.
- Tests compare readers with `expected`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from remote_fetch.model import IsolationLevel, TimestampType
from remote_fetch.testing.records import Header

__all__ = ["LogRecord", "Oracle", "TxnOutcome"]


class TxnOutcome(StrEnum):
    """The outcome of a record's transaction."""

    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as a consumer sees it, with the fields that decide whether it is shown.

    `leader_epoch` and `producer_id` are -1 if the format has none. `txn` numbers the transactions of a log from 0. It
    is -1 if the record is in none.
    """

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    leader_epoch: int = -1
    producer_id: int = -1
    txn: int = -1
    outcome: TxnOutcome = TxnOutcome.NONE


@dataclass(frozen=True, slots=True)
class _Transaction:
    """The offsets at which one transaction began, had its first data and ended. None: not yet."""

    producer_id: int
    begin_offset: int
    first_offset: int | None = None
    marker_offset: int | None = None
    outcome: TxnOutcome = TxnOutcome.OPEN


class Oracle:
    """The contents of one log, up to its end offset."""

    def __init__(self) -> None:
        self._records: list[LogRecord] = []
        self._transactions: list[_Transaction] = []
        self._open: dict[int, int] = {}

    def is_open(self, producer_id: int) -> bool:
        """Whether the producer is in a transaction."""
        return producer_id in self._open

    def begin(self, producer_id: int, offset: int) -> None:
        """The producer starts a transaction when the log ends at `offset`. Raises ValueError if it is in one."""
        if producer_id < 0 or producer_id in self._open:
            raise ValueError(f"producer {producer_id} cannot begin a transaction here")
        self._open[producer_id] = len(self._transactions)
        self._transactions.append(_Transaction(producer_id, offset))

    def data(self, producer_id: int, offset: int) -> int:
        """A batch of the producer is written at `offset`. Returns the number of its transaction, -1 for none."""
        txn = self._open.get(producer_id, -1)
        if txn >= 0 and self._transactions[txn].first_offset is None:
            self._transactions[txn] = replace(self._transactions[txn], first_offset=offset)
        return txn

    def end(self, producer_id: int, offset: int, *, commit: bool) -> None:
        """A marker at `offset` ends the producer's transaction. Raises ValueError if it is in none."""
        txn = self._open.pop(producer_id, None)
        if txn is None:
            raise ValueError(f"producer {producer_id} is not in a transaction")
        outcome = TxnOutcome.COMMITTED if commit else TxnOutcome.ABORTED
        self._transactions[txn] = replace(self._transactions[txn], marker_offset=offset, outcome=outcome)

    def write(self, records: Sequence[LogRecord]) -> None:
        """Add the records of one batch, which follow all earlier records in offset order."""
        self._records += records

    def records(self) -> list[LogRecord]:
        """Every record, in offset order, with the current outcome of its transaction."""
        return [
            record if record.txn < 0 else replace(record, outcome=self._transactions[record.txn].outcome)
            for record in self._records
        ]

    def stable_offset(self, end_offset: int) -> int:
        """The last stable offset when the log ended at `end_offset`: the start of its earliest open transaction."""
        open_offsets = (
            transaction.first_offset
            for transaction in self._transactions
            if transaction.first_offset is not None
            and transaction.first_offset < end_offset
            and (transaction.marker_offset is None or transaction.marker_offset >= end_offset)
        )
        return min(open_offsets, default=end_offset)

    def expected(self, isolation: IsolationLevel, start: int, stop: int, *, end_offset: int) -> list[LogRecord]:
        """The records of offsets [start, stop) that a broker delivers from a log that ends at `end_offset`.

        Under read_committed they end at the last stable offset, and aborted records are left out.
        """
        committed_only = isolation is IsolationLevel.READ_COMMITTED
        end = min(stop, self.stable_offset(end_offset) if committed_only else end_offset)
        return [
            record
            for record in self.records()
            if start <= record.offset < end and not (committed_only and record.outcome is TxnOutcome.ABORTED)
        ]

    def fork(self, offset: int) -> Oracle:
        """The oracle of the log below `offset`. Transactions that were open there are open."""
        other = Oracle()
        other._records = [record for record in self._records if record.offset < offset]
        for transaction in self._transactions:
            if transaction.begin_offset >= offset:
                break
            kept = transaction
            if kept.first_offset is not None and kept.first_offset >= offset:
                kept = replace(kept, first_offset=None)
            if kept.marker_offset is not None and kept.marker_offset >= offset:
                kept = replace(kept, marker_offset=None, outcome=TxnOutcome.OPEN)
            if kept.marker_offset is None:
                other._open[kept.producer_id] = len(other._transactions)
            other._transactions.append(kept)
        return other

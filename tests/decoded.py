"""Decoded rows for tests: of rows that a test names, and as Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from remote_fetch.decode import run_reference
from remote_fetch.decode.decoded_rows import DecodedRows, Tables, arrow_of
from remote_fetch.decode.engine import installed
from remote_fetch.decode.messages import MESSAGE_COLUMNS
from remote_fetch.decode.run_decoder import MAX_ROWS, BatchReader
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.formats.batches import BatchHeader
from remote_fetch.testing.records import Record, encode_records

__all__ = ["USUAL", "ArrowReader", "decoded", "fields"]

USUAL: Mapping[str, Any] = {
    "key": b"k",
    "value": b"v",
    "offset": 0,
    "timestampMs": 1_000,
    "timestampType": 0,
    "headers": [],
    "leaderEpoch": 0,
}
"""The values that a test leaves out of a row."""


def decoded(
    rows: Sequence[Mapping[str, Any]], *, engine: ModuleType | None = None, columns: Sequence[str] = MESSAGE_COLUMNS
) -> DecodedRows:
    """These rows, each of a Kafka batch of its own, as the decoder gives them in one run."""
    engine = engine or installed(run_reference)
    tables = Tables("t", 0, columns, MAX_ROWS, engine)
    decoder = engine.BatchDecoder(tables.decoded)
    for row in ({**USUAL, **one} for one in rows):
        record = Record(0, 0, row["key"], row["value"], tuple(row["headers"]))
        status, _, _ = decoder.append(
            memoryview(encode_records([record])),
            offsets=(row["offset"], row["offset"]),
            window=(0, 2**63 - 1),
            record_count=1,
            base_ms=row["timestampMs"],
            timestamp_type=row["timestampType"],
            leader_epoch=row["leaderEpoch"],
        )
        assert status == RunStatus.END
    return DecodedRows(decoder.take(), tables)


class ArrowReader:
    """A `BatchReader` that gives Arrow batches."""

    def __init__(self, topic: str, partition: int, columns: Sequence[str], **options: Any) -> None:
        self._reader = BatchReader(topic, partition, columns, **options)

    @property
    def rows(self) -> int:
        return self._reader.rows

    @property
    def saturated(self) -> int:
        return self._reader.saturated

    def read(self, header: BatchHeader, records: memoryview, start: int, stop: int) -> list[pa.RecordBatch]:
        return arrow_of(self._reader.read(header, records, start, stop))

    def append(self, header: BatchHeader, records: memoryview, start: int, stop: int) -> list[pa.RecordBatch]:
        return arrow_of(self._reader.append(header, records, start, stop))

    def drain(self) -> list[pa.RecordBatch]:
        return arrow_of(self._reader.drain())


def fields(message: Message) -> tuple[Any, ...]:
    """The values of all accessors of a message."""
    return (
        type(message),
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.error(),
        message.timestamp(),
        message.latency(),
        message.leader_epoch(),
        message.delivery_count(),
        len(message),
    )

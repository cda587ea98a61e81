"""The lines of a `.log`: its batches, and the records in them.

Rules of the file:

- One range and one batch are held at a time.
- A batch with a wrong checksum is shown, with `isvalid: false`. The lines end at bytes that are no batch.
- Every fault is reported on stderr with its position.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from remote_fetch.cli.dump_lines import Lines, OptionalLong
from remote_fetch.cli.dump_metadata import metadata_text
from remote_fetch.decode.arrays import java_text
from remote_fetch.decode.record_reference import Ended, Shape, records_of
from remote_fetch.decode.run_status import FAULTS
from remote_fetch.errors import CorruptSegment, DecompressionLimit, RemoteFetchError, UnsupportedFormat
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer, BatchHeader, FramedBatch, check_crc, sequence_at
from remote_fetch.formats.codecs import CODEC_NAMES, Codecs
from remote_fetch.formats.control import ControlType, control_record
from remote_fetch.formats.legacy import messages_of
from remote_fetch.model import TimestampType

__all__ = ["LogDump", "say"]

_TIMESTAMP_TYPES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_NOT_AS_KAFKA_WRITES = (CorruptSegment, DecompressionLimit, UnsupportedFormat)


def say(file: str, error: RemoteFetchError) -> None:
    """Say on stderr what is wrong with a file."""
    print(f"remote-fetch: {file}: {error}", file=sys.stderr)


class _Record(NamedTuple):
    """One record of any format. `headers` is None and `crc` is a number for magic 0 and 1."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]] | None
    crc: int | None


@dataclass(frozen=True, slots=True)
class LogDump:
    """Prints the batches of one segment after another.

    - `is_shallow`: batches alone. `has_data`: keys and payloads too.
    - `is_metadata`: payloads are records of `__remote_log_metadata`.
    """

    lines: Lines
    codecs: Codecs
    max_batch_bytes: int
    is_shallow: bool = False
    has_data: bool = True
    is_metadata: bool = False

    def dump(self, file: str, base_offset: int | None, ranges: Iterable[memoryview]) -> bool:
        """Print a segment, given as its bytes in order. Returns whether all of it is as Kafka writes it.

        `base_offset` is that of the file's name; None: it is taken from the first batch. Raises what `ranges` raises.
        """
        if base_offset is not None:
            self._begin(base_offset)
        framer, is_sound, is_begun = BatchFramer(0, max_batch_bytes=self.max_batch_bytes), True, base_offset is not None
        for data in ranges:
            framer.feed(data)
            try:
                while (batch := framer.next_batch()) is not None:
                    if not is_begun:
                        self._begin(batch.header.base_offset)
                        is_begun = True
                    is_sound &= self._batch(file, batch)
            except (CorruptSegment, UnsupportedFormat) as error:
                say(file, error)
                return False
        try:
            framer.finish()
        except CorruptSegment as error:
            left_bytes = framer.pending_bytes
            self.lines.heading(f"Found {left_bytes} invalid bytes at the end of {file.rpartition('/')[2]}")
            say(file, error)
            return False
        return is_sound

    def _begin(self, base_offset: int) -> None:
        self.lines.heading(f"Log starting offset: {base_offset}")

    def _batch(self, file: str, batch: FramedBatch) -> bool:
        fault: RemoteFetchError | None = None
        try:
            check_crc(batch)
        except CorruptSegment as error:
            fault = error
        self.lines.fields("batch", _batch_fields(batch, is_valid=fault is None))
        if fault is not None:
            say(file, fault)
        if self.is_shallow:
            return fault is None
        try:
            for record in _records(batch, self.codecs):
                self._record(batch.header, record, is_valid=fault is None)
        except _NOT_AS_KAFKA_WRITES as error:
            say(file, error.at(position=batch.position, offset=batch.header.base_offset))
            return False
        return fault is None

    def _record(self, header: BatchHeader, record: _Record, *, is_valid: bool) -> None:
        key, value = record.key, record.value
        fields: dict[str, Any] = {
            "offset": record.offset,
            _TIMESTAMP_TYPES[header.timestamp_type]: record.timestamp_ms,
            "keySize": -1 if key is None else len(key),
            "valueSize": -1 if value is None else len(value),
        }
        more: dict[str, Any] = {}
        if record.headers is not None:
            fields["sequence"] = _sequence(header.base_sequence, record.offset - header.base_offset)
            fields["headerKeys"] = [java_text(name) for name, _ in record.headers]
            more["headers"] = record.headers
        if record.crc is not None:
            # The checksum of a message alone is its batch's. Those inside a compressed one have been checked.
            fields |= {"isValid": is_valid or header.codec != 0, "crc": record.crc}
        if header.is_control:
            fields |= _control_fields(key, value)
        elif self.is_metadata:
            fields["payload"] = metadata_text(value, record.offset)
        elif self.has_data:
            fields |= {"key": key, "payload": value}
        self.lines.fields("record", fields, prefix="| ", more=more if self.has_data else None)


def _records(batch: FramedBatch, codecs: Codecs) -> Iterator[_Record]:
    """The records of a batch of any format. Raises CorruptSegment, DecompressionLimit and UnsupportedFormat."""
    header = batch.header
    if header.magic < 2:
        for message in messages_of(batch, codecs):
            key, value = (None if data is None else bytes(data) for data in (message.key, message.value))
            yield _Record(message.offset, message.timestamp_ms, key, value, None, message.crc)
        return
    # A cleaner keeps an empty batch without a record area, whatever its codec.
    area = codecs.decompress(header.codec if header.record_count else 0, batch.data[HEADER_BYTES:])
    try:
        for row in records_of(area, Shape.of(header)):
            yield _Record(row.offset, row.timestamp_ms, row.key, row.value, row.headers, None)
    except Ended as ended:
        raise CorruptSegment(f"a record of the batch: {FAULTS[ended.status]}", offset=ended.offset) from None


def _batch_fields(batch: FramedBatch, *, is_valid: bool) -> dict[str, Any]:
    header = batch.header
    fields: dict[str, Any] = {"offset": header.last_offset}
    if header.magic == 2:
        fields = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": _sequence(header.base_sequence, header.last_offset - header.base_offset),
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": OptionalLong(header.delete_horizon_ms),
        }
    return fields | {
        "position": batch.position,
        _TIMESTAMP_TYPES[header.timestamp_type]: header.max_timestamp_ms,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": CODEC_NAMES.get(header.codec, str(header.codec)),
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _sequence(base: int, delta: int) -> int:
    """The sequence number `delta` after `base`, -1 if the producer has none."""
    return -1 if base < 0 else sequence_at(base, delta)


def _control_fields(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    control = control_record(key, value)
    if control.type in (ControlType.ABORT, ControlType.COMMIT):
        return {"endTxnMarker": control.type.name, "coordinatorEpoch": control.coordinator_epoch}
    return {"controlType": f"{control.type.name}({control.type_id})"}

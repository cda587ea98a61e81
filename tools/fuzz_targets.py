"""What `tools.fuzz` damages: for each kind of foreign bytes its parser, and seeds that real writers made.

Rules of the file: a seed parses; a target reads as the product does, to the end, so that lazy parsers have no
way out; where a checksum guards the bytes, `reseal` renews it, or no damage would get past it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from remote_fetch.decode.columns import ColumnBuilder
from remote_fetch.formats.batches import BatchFramer, FramedBatch, check_crc
from remote_fetch.formats.checkpoints import parse_leader_epoch_checkpoint, parse_producer_snapshot
from remote_fetch.formats.codecs import Codecs
from remote_fetch.formats.control import control_type
from remote_fetch.formats.indexes import OffsetIndex, TimeIndex, parse_transaction_index
from remote_fetch.formats.legacy import to_v2
from remote_fetch.formats.metadata_records import parse_metadata_record, topic_id_of
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines, load_timelines
from remote_fetch.locate.timeline import TimelineBuilder
from remote_fetch.model import Uuid
from remote_fetch.testing.records import Record, encode_batch, encode_legacy, encode_marker, rewrite_crc

__all__ = ["GOLDENS", "Target", "targets"]

GOLDENS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "data"
MAX_SEED_BYTES = 16 << 10
MAX_INFLATED_BYTES = 16 << 20
_SEALED_FROM = 17  # A batch needs its magic to be sealed.


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of foreign bytes. `parse` raises errors of `remote_fetch.errors` only, whatever it is given."""

    name: str
    seeds: tuple[bytes, ...]
    parse: Callable[[bytes], object]
    reseal: Callable[[bytes], bytes] = lambda data: data


def targets(goldens: Path = GOLDENS, *, seeds_per_kind: int = 6) -> tuple[Target, ...]:
    """Every target, with at most `seeds_per_kind` seeds of each kind, the same ones in each run."""

    def files(suffix: str) -> tuple[bytes, ...]:
        found = (path.read_bytes() for path in sorted(goldens.rglob(f"*{suffix}")))
        return _chosen((data for data in found if 0 < len(data) <= MAX_SEED_BYTES), seeds_per_kind)

    metadata = tuple(_metadata_values(goldens))
    return (
        Target("log", files(".log"), _read_log),
        Target("batch", tuple(_batches()), _read_log, _reseal_batch),
        Target("codec", tuple(_compressed()), _inflate),
        Target("offset index", files(".index"), _read_offset_index),
        Target("time index", files(".timeindex"), _read_time_index),
        Target("transaction index", files(".txnindex"), parse_transaction_index),
        Target("leader epochs", files(".leader_epoch_checkpoint"), parse_leader_epoch_checkpoint),
        Target("producers", files(".snapshot"), parse_producer_snapshot, _reseal_producers),
        Target("metadata record", _chosen(metadata, seeds_per_kind), _read_metadata),
        Target("timeline snapshot", (_timeline_snapshot(metadata),), load_timelines),
    )


def _chosen(seeds: Iterable[bytes], count: int) -> tuple[bytes, ...]:
    """`count` of the distinct seeds, spread over their sizes."""
    ordered = sorted(set(seeds), key=lambda data: (len(data), data))
    return tuple(ordered[:: max(1, len(ordered) // count)][:count])


# ------------------------------------------------------------------------------------------------------- record batches


def _records() -> list[Record]:
    return [
        Record(0, 0, b"key", b"value" * 9, (("header", b"1"), ("empty", None))),
        Record(1, -5, None, b"", ()),
        Record(7, 12, b"", None, (("", b""),)),
    ]


def _batches() -> Iterator[bytes]:
    """One batch, or one legacy message or wrapper, in each format and codec."""
    for codec in range(5):
        yield encode_batch(40, _records(), codec=codec, base_timestamp_ms=1_700_000_000_000)
    yield encode_batch(40, _records(), codec=2, snappy_framing="xerial", log_append_time_ms=1)
    yield encode_marker(48, 1, commit=False)
    messages = [Record(at, 0, record.key, record.value, ()) for at, record in enumerate(_records())]
    for magic in (0, 1):
        yield encode_legacy(40, messages[:1], magic=magic)
        for codec in (1, 2, 3):
            yield encode_legacy(40, messages, magic=magic, codec=codec)


def _reseal_batch(data: bytes) -> bytes:
    return rewrite_crc(data) if len(data) > _SEALED_FROM + 4 else data


def _read_log(data: bytes) -> object:
    codecs = Codecs(max_bytes=MAX_INFLATED_BYTES)
    builder = ColumnBuilder("topic", 0)
    framer = BatchFramer(0)
    framer.feed(memoryview(data))
    while (batch := framer.next_batch()) is not None:
        check_crc(batch)
        _read_batch(batch, codecs, builder)
    framer.finish()
    rows = builder.flush()
    if rows is not None:
        rows.validate(full=True)
    return rows


def _read_batch(batch: FramedBatch, codecs: Codecs, builder: ColumnBuilder) -> None:
    header = batch.header
    if header.is_control:
        control_type(batch, codecs)
    elif header.magic < 2:
        header, area = to_v2(batch, codecs)
        builder.append(header, area, 0, header.next_offset)
    else:
        builder.append(header, codecs.decompress(header.codec, batch.data[61:]), 0, header.next_offset)


def _compressed() -> Iterator[bytes]:
    """The codec's number, then what it made: the number is damaged too."""
    for codec in range(1, 5):
        yield bytes([codec]) + encode_batch(0, _records() * 40, codec=codec, last_offset_delta=7)[61:]
    yield bytes([2]) + encode_batch(0, _records() * 40, codec=2, last_offset_delta=7, snappy_framing="xerial")[61:]


def _inflate(data: bytes) -> object:
    codecs = Codecs(max_bytes=MAX_INFLATED_BYTES)
    out = codecs.decompress(data[0] & 7 if data else 0, memoryview(data)[1:])
    if len(out) > max(MAX_INFLATED_BYTES, len(data)):
        raise AssertionError(f"{len(out)} bytes came out, the bound is {MAX_INFLATED_BYTES}")
    return out


# --------------------------------------------------------------------------------------------------- indexes and states


def _read_offset_index(data: bytes) -> object:
    for index in OffsetIndex.parse(data, 0).candidates():
        for entry in index.entries():
            index.start_position(entry.offset)
            index.end_position(entry.offset)
    return None


def _read_time_index(data: bytes) -> object:
    index = TimeIndex.parse(data, 0)
    return [index.start_offset(entry.timestamp_ms) for entry in index.entries()]


def _reseal_producers(data: bytes) -> bytes:
    """A producer snapshot: version (2 bytes), CRC-32C of what follows it (4), the entries."""
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


# ------------------------------------------------------------------------------------------------------------- metadata


def _metadata_values(goldens: Path) -> Iterator[bytes]:
    for path in sorted(goldens.rglob("metadata.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                value = json.loads(line)["value"]
                if value:
                    yield base64.b64decode(value)


def _read_metadata(data: bytes) -> object:
    topic_id_of(data)
    builder = TimelineBuilder()
    builder.apply(data, offset=0)  # A builder counts what it cannot read, and raises nothing at all.
    for partition in builder.partitions():
        builder.build(partition)
    return parse_metadata_record(data)


def _timeline_snapshot(values: Iterable[bytes]) -> bytes:
    builder = TimelineBuilder()
    for offset, value in enumerate(values):
        builder.apply(value, offset=offset)
    origin = SnapshotOrigin("cluster", Uuid(bytes(range(16))), 5, ((0, 12), (3, 7)))
    return dump_timelines([builder.build(partition) for partition in builder.partitions()], origin=origin)

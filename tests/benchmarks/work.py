"""Parts that the benchmarks of decoding share: segments of a foreign writer, the contenders, the clock, the page.

Rules of the file:

- A contender is a function without arguments. It reads one segment to its end and returns its number of records.
- Each makes record batches of the same columns, except the floors (`copy`, `loop`, `bare`). Their docstrings name the
  steps that they leave out.
- The least thread CPU time of several rounds counts. All contenders take turns in a round.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any

import cramjam
import pyarrow as pa
import zstandard
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from crc32c import crc32c
from kafka.codec import has_lz4, has_snappy, has_zstd
from kafka.record import MemoryRecords as KafkaPythonRecords

from remote_fetch.decode.columns import DEFAULT_COLUMNS, schema_for
from remote_fetch.decode.decoded_rows import DecodedRows, arrow_of
from remote_fetch.decode.run_decoder import BatchReader, Bounds, RunReader, Start
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.formats.batches import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchFramer
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.session.decode_pool import DecodePool
from remote_fetch.testing.compression import compress
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record, encode_batch, rewrite_crc

__all__ = [
    "CODECS",
    "Segment",
    "aiokafka",
    "bare",
    "copy",
    "kafka_python",
    "kafka_python_reads",
    "loop",
    "make_segment",
    "measure",
    "ours",
    "runs",
]

CODECS: Mapping[str, int] = MappingProxyType({"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4})
EVERYTHING = 2**63 - 1
RANGE_BYTES = 8 << 20
PEER_ROWS = 8192
HEADERS = [("trace", b"0123456789abcdef"), ("attempt", b"1")]


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes of one segment, and its record areas as they are when decompressed. A marker has an offset too."""

    codec: str
    data: bytes
    areas: bytes
    records: int
    markers: int = 0


def make_segment(
    value_bytes: int,
    codec: str,
    size_mb: int,
    *,
    batch_bytes: int = 16_384,
    batch_records: int = 1 << 30,
    headers: bool = True,
    producer_of: Callable[[int], int] = lambda number: -1,
) -> Segment:
    """About `size_mb` of uncompressed records; the same at every run.

    A batch ends at `batch_bytes` or `batch_records`. `headers`: a quarter of the records has two. `producer_of` gives
    the producer id of a batch, by its number; what has one is transactional.
    """
    rng = random.Random(1)
    # Half text that repeats, half noise: compresses to something over a half.
    values = [(b'{"user": "someone", "n": %05d}' % n * 40)[: value_bytes // 2] for n in range(256)]
    values = [value + rng.randbytes(value_bytes - len(value)) for value in values]
    data, areas, codecs = bytearray(), bytearray(), Codecs()
    offset = number = 0
    while len(areas) < size_mb << 20:
        producer = producer_of(number)
        own = codec == "lz4"  # aiokafka frames it as no other client does
        builder = DefaultRecordBatchBuilder(2, 0 if own else CODECS[codec], producer >= 0, producer, 0, 0, batch_bytes)
        count = 0
        while count < batch_records and builder.append(
            count,
            1_700_000_000_000 + offset,
            b"key-%08d" % offset,
            values[offset % 256],
            HEADERS if headers and offset % 4 == 0 else [],
        ):
            count += 1
            offset += 1
        batch = _in_lz4(bytes(builder.build())) if own else bytearray(builder.build())
        batch[:8] = (offset - count).to_bytes(8, "big")  # outside the CRC, as a broker sets it
        data += batch
        areas += codecs.decompress(batch[22] & 7, memoryview(bytes(batch))[HEADER_BYTES:])
        number += 1
    return Segment(codec, bytes(data), bytes(areas), offset)


def make_transactions(records: int, transactions: int) -> Segment:
    """So many committed transactions of so many records each, with values of 100 bytes and without compression."""
    log, batch = LogBuilder(), [Record(at, at, b"key-%08d" % at, b"v" * 100) for at in range(records)]
    for _ in range(transactions):
        log.begin(7)
        log.append_batch(batch, producer_id=7)
        log.commit(7)
    data = [batch.data for batch in log.batches]
    areas = b"".join(batch[HEADER_BYTES:] for batch in data)
    return Segment("none", b"".join(data), areas, records * transactions, transactions)


def _in_lz4(batch: bytes) -> bytearray:
    """The batch compressed as Java's producer and librdkafka do it, if that makes it smaller."""
    area = compress(CODECS["lz4"], batch[HEADER_BYTES:])
    if len(area) >= len(batch) - HEADER_BYTES:
        return bytearray(batch)
    attributes = bytes([batch[22] | CODECS["lz4"]])
    size_bytes = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(area)
    head = batch[:8] + size_bytes.to_bytes(4, "big") + batch[12:22] + attributes + batch[23:HEADER_BYTES]
    return bytearray(rewrite_crc(head + area))


# --------------------------------------------------------------------------------------------------------------- floors


def copy(segment: Segment) -> Callable[[], int]:
    """The uncompressed records once through memory, into a buffer that stays."""
    areas = memoryview(segment.areas)
    target = bytearray(1 << 20)

    def run() -> int:
        for start in range(0, len(areas), 1 << 20):
            piece = areas[start : start + (1 << 20)]
            target[: len(piece)] = piece
        return segment.records

    return run


def loop(segment: Segment) -> Callable[[], int]:
    """Record areas that are decompressed already, one call a batch: no framing, no checksum and no codec."""
    framer, codecs = BatchFramer(0), Codecs()
    framer.feed(memoryview(segment.data))
    batches = []
    while (batch := framer.next_batch()) is not None:
        area = memoryview(bytes(codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])))  # that stays
        batches.append((batch.header, area))

    def run() -> int:
        reader, rows = BatchReader("topic", 0, DEFAULT_COLUMNS), 0
        for header, area in batches:
            rows += _rows_in(reader.append(header, area, 0, EVERYTHING))
        return rows + _rows_in(reader.drain())

    return run


def _rows_in(decoded: Iterable[DecodedRows]) -> int:
    """How many rows there are in the Arrow batches that are made of them."""
    return sum(batch.num_rows for batch in arrow_of(decoded))


def bare(segment: Segment) -> Callable[[], int]:
    """The checksums, and the libraries' own decompression with nothing around it: where batches begin is known."""
    framer = BatchFramer(0)
    framer.feed(memoryview(segment.data))
    pieces = []
    codecs = Codecs()
    while (batch := framer.next_batch()) is not None:
        codec = batch.header.codec
        size_bytes = len(codecs.decompress(codec, batch.data[HEADER_BYTES:]))
        pieces.append((batch.data[21:], codec, batch.data[HEADER_BYTES:], size_bytes))
    inflate = _libraries()

    def run() -> int:
        for covered, codec, area, size_bytes in pieces:
            crc32c(covered)
            if codec:
                inflate[codec](area, size_bytes)
        return segment.records

    return run


def _libraries() -> dict[int, Callable[[memoryview, int], object]]:
    room = bytearray(4 << 20)
    zstd = zstandard.ZstdDecompressor()

    def lz4(area: memoryview, size_bytes: int) -> object:
        if size_bytes > 64 << 10 or area[10] & 0x80:
            return cramjam.lz4.decompress_into(area, memoryview(room)[:size_bytes])
        return cramjam.lz4.decompress_block_into(area[11:-4], room, output_len=size_bytes)

    return {
        1: lambda area, size_bytes: cramjam.gzip.decompress_into(area, memoryview(room)[:size_bytes]),
        2: lambda area, _: _snappy(area),
        3: lz4,
        4: lambda area, size_bytes: zstd.decompress(area, max_output_size=size_bytes),
    }


def _snappy(area: memoryview) -> None:
    at = 16  # aiokafka writes Java's framing: a header, then blocks with their lengths
    while at < len(area):
        size_bytes = int.from_bytes(area[at : at + 4], "big")
        cramjam.snappy.decompress_raw(area[at + 4 : at + 4 + size_bytes])
        at += 4 + size_bytes


# ----------------------------------------------------------------------------------------------------------- contenders


def ours(
    segment: Segment, *, aborted: AbortedIntervals | None = None, unit_bytes: int | None = None
) -> Callable[[], int]:
    """The product's way from ranges of bytes to record batches, in one thread.

    `aborted` None: read_uncommitted. `unit_bytes` None: the units of the product.
    """
    data = memoryview(segment.data)
    last_offset = segment.records + segment.markers - 1
    partition = TopicIdPartition(Uuid(bytes(16)), "topic", 0)
    metadata = RemoteLogSegmentMetadata(RemoteLogSegmentId(partition, Uuid(bytes(16))), 0, last_offset, len(data))

    def run() -> int:
        rows = PartitionRows("topic", 0, DEFAULT_COLUMNS, Lineage.unknown(), aborted, 0)
        piece = SegmentSlice(metadata, 0, last_offset)
        pool = DecodePool(threads=0, unit_bytes=unit_bytes)
        reader = SliceReader(piece, rows, Codecs(), pool, position=0, max_batch_bytes=128 << 20)
        count = 0
        for start in range(0, len(data), RANGE_BYTES):
            count += _rows_in(reader.feed(data[start : start + RANGE_BYTES]))
        return count + _rows_in(reader.finish()) + _rows_in(rows.flush())

    return run


def runs(segment: Segment, *, engine: ModuleType | None = None) -> Callable[[], int]:
    """The run decoder alone, with the same columns. A batch confirms the place of the last one.

    `engine` None: natively if it was built.
    """
    data = memoryview(segment.data + encode_batch(segment.records, [], last_offset_delta=0, leader_epoch=-1))
    bounds = Bounds(0, segment.records, EVERYTHING)

    def run() -> int:
        reader = RunReader("topic", 0, DEFAULT_COLUMNS, bounds, engine=engine)
        at, last_offset, count, status = 0, -1, 0, RunStatus.FULL
        while status is RunStatus.FULL:
            done = reader.read(data, at, Start(last_offset, 0, -1, EVERYTHING))
            at, last_offset, status = done.position, done.last_offset, done.status
            count += _rows_in([done.rows])
        return count

    return run


def _peer(segment: Segment, batches_of: Callable[[bytes], Iterator[Iterable[Any]]]) -> Callable[[], int]:
    """A client's record reader, its records gathered into the same columns by pyarrow."""
    schema = schema_for(DEFAULT_COLUMNS)

    def close(records: list[Any]) -> int:
        count = len(records)
        columns: list[Any] = [
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            pa.repeat(pa.scalar("topic"), count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp for record in records], pa.int64()).cast(pa.timestamp("ms", "UTC")),
            pa.array([record.timestamp_type for record in records], pa.int32()),
            pa.array([record.headers for record in records], schema.field("headers").type),
        ]
        columns[5] = columns[5].cast(schema.field("timestamp").type)
        return pa.RecordBatch.from_arrays(columns, schema=schema).num_rows

    def run() -> int:
        rows = 0
        pending: list[Any] = []
        for batch in batches_of(segment.data):
            pending += batch
            if len(pending) >= PEER_ROWS:
                rows += close(pending)
                pending = []
        return rows + close(pending)

    return run


def aiokafka(segment: Segment) -> Callable[[], int]:
    """The work of aiokafka's fetcher on a response, by its compiled record reader, and pyarrow."""

    def batches_of(data: bytes) -> Iterator[Iterable[Any]]:
        records = AiokafkaRecords(data)
        while records.has_next():
            batch = records.next_batch()
            if not batch.validate_crc():
                raise ValueError("checksum")
            if not batch.is_control_batch:
                yield batch

    return _peer(segment, batches_of)


def kafka_python(segment: Segment) -> Callable[[], int]:
    """Reads with kafka-python's record reader, which is plain Python."""

    def batches_of(data: bytes) -> Iterator[Iterable[Any]]:
        records = KafkaPythonRecords(data)
        while (batch := records.next_batch()) is not None:
            if not batch.validate_crc():
                raise ValueError("checksum")
            yield batch

    return _peer(segment, batches_of)


def kafka_python_reads(codec: str) -> bool:
    """Whether the library that it needs for the codec is installed; some are none that anything else here uses."""
    needed = {"lz4": has_lz4, "snappy": has_snappy, "zstd": has_zstd}
    return codec not in needed or bool(needed[codec]())


# ------------------------------------------------------------------------------------------------------ clock and page


def measure(contenders: Mapping[str, Callable[[], int]], records: int, rounds: int) -> dict[str, float]:
    """Nanoseconds of thread CPU time a record: the least of the rounds, the contenders taking turns."""
    best = dict.fromkeys(contenders, float("inf"))
    # As timeit does: what the collector walks through is everybody's, and only the peers make objects to set it off.
    gc.disable()
    for _ in range(rounds):
        for name, run in contenders.items():
            # Quick ones more often: a disturbance is a larger part of them.
            for _ in range(1 if best[name] > 500 and best[name] != float("inf") else 3):
                start = time.thread_time_ns()
                rows = run()
                best[name] = min(best[name], (time.thread_time_ns() - start) / records)
                if rows != records:
                    raise ValueError(f"{name} read {rows} of {records} records")
    gc.enable()
    return best

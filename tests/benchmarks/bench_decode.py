"""From the bytes of a segment to Arrow record batches, beside a plain copy and two Python clients.

Rules of the file: the bytes come from a foreign writer (aiokafka); every contender reads the same ones in the same run,
in turn, checks the CRC, decompresses and ends with record batches of the same columns; what counts is the least thread
CPU time of several rounds. `--write` puts the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import importlib.util
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.codec import has_lz4, has_zstd
from kafka.record import MemoryRecords as KafkaPythonRecords

import remote_fetch.decode
from remote_fetch.decode import _columns
from remote_fetch.decode._chunk import Chunk
from remote_fetch.decode.batch_table import row_of as table_row_of
from remote_fetch.decode.columns import DEFAULT_COLUMNS, ColumnBuilder, is_compiled, schema_for
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer, check_crc
from remote_fetch.formats.codecs import Codecs

CODECS = {"none": 0, "lz4": 3, "zstd": 4}
VALUE_BYTES = (100, 1000)
BATCH_BYTES = 16_384
"""`batch.size` of a Kafka producer by default."""

RANGE_BYTES = 4 << 20
PEER_ROWS = 8192
EVERYTHING = 2**63 - 1
DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"
START, END = "<!-- bench_decode: start -->", "<!-- bench_decode: end -->"

HEAD = (
    "| value bytes | codec | data | copy | loop | whole path | whole path, GB/s | aiokafka | kafka-python "
    "| loop / copy | aiokafka / ours | kafka-python / ours |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes of one segment, and its record areas as they are when decompressed."""

    value_bytes: int
    codec: str
    size_mb: int
    data: bytes
    areas: bytes
    records: int


def make_segment(value_bytes: int, codec: str, size_mb: int) -> Segment:
    """About `size_mb` of uncompressed batches, a quarter of the records with two headers; the same at every run."""
    rng = random.Random(1)
    # Half text that repeats, half noise: compresses to something over a half.
    values = [(b'{"user": "someone", "n": %05d}' % n * 40)[: value_bytes // 2] for n in range(256)]
    values = [value + rng.randbytes(value_bytes - len(value)) for value in values]
    headers = [("trace", b"0123456789abcdef"), ("attempt", b"1")]
    data = bytearray()
    areas = bytearray()
    offset = 0
    codecs = Codecs()
    while len(areas) < size_mb << 20:
        builder = DefaultRecordBatchBuilder(2, CODECS[codec], False, -1, -1, 0, BATCH_BYTES)
        count = 0
        while builder.append(
            count,
            1_700_000_000_000 + offset,
            b"key-%08d" % offset,
            values[offset % 256],
            headers if offset % 4 == 0 else [],
        ):
            count += 1
            offset += 1
        batch = bytearray(builder.build())
        batch[:8] = (offset - count).to_bytes(8, "big")  # outside the CRC, as a broker sets it
        data += batch
        areas += codecs.decompress(CODECS[codec] if batch[22] & 7 else 0, memoryview(bytes(batch))[HEADER_BYTES:])
    return Segment(value_bytes, codec, size_mb, bytes(data), bytes(areas), offset)


def copy(segment: Segment) -> Callable[[], int]:
    """The floor: the uncompressed records once through memory, into a buffer that stays."""
    areas = memoryview(segment.areas)
    target = bytearray(1 << 20)

    def run() -> int:
        for start in range(0, len(areas), 1 << 20):
            piece = areas[start : start + (1 << 20)]
            target[: len(piece)] = piece
        return segment.records

    return run


def inner_loop(segment: Segment) -> Callable[[], int]:
    """Decompressed record areas into buffers that stay, as the copy's does; no Arrow batch is made of them."""
    framer, codecs = BatchFramer(0), Codecs()
    framer.feed(memoryview(segment.data))
    batches = []
    while (batch := framer.next_batch()) is not None:
        area = codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])
        batches.append((area, table_row_of(batch.header, len(area))))
    chunk = Chunk(_columns, DEFAULT_COLUMNS, 65_536, 1 << 20)

    def run() -> int:
        columns = chunk._bind()
        rows = 0
        for area, row in batches:
            if not columns.decode(area, row, 0, 1, 0, EVERYTHING):
                rows += columns.rows
                columns = chunk._bind()
                columns.decode(area, row, 0, 1, 0, EVERYTHING)
        return rows + columns.rows

    return run


def whole_path(segment: Segment, kernel: ModuleType | None = None) -> Callable[[], int]:
    """Frame, check, decompress, decode, in ranges as they come from a store."""
    data = memoryview(segment.data)

    def run() -> int:
        framer, codecs = BatchFramer(0), Codecs()
        builder = ColumnBuilder("topic", 0, kernel=kernel)
        rows = 0
        for start in range(0, len(data), RANGE_BYTES):
            framer.feed(data[start : start + RANGE_BYTES])
            while (batch := framer.next_batch()) is not None:
                check_crc(batch)
                area = codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])
                rows += sum(full.num_rows for full in builder.append(batch.header, area, 0, EVERYTHING))
        last = builder.flush()
        return rows + (last.num_rows if last is not None else 0)

    return run


def peer(segment: Segment, batches_of: Callable[[bytes], Iterator[Iterable[Any]]]) -> Callable[[], int]:
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


def aiokafka_batches(data: bytes) -> Iterator[Iterable[Any]]:
    """What aiokafka's fetcher does with a response, by its compiled record reader."""
    records = AiokafkaRecords(data)
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError("checksum")
        yield batch


def kafka_python_batches(data: bytes) -> Iterator[Iterable[Any]]:
    """The same by kafka-python's, which is plain Python."""
    records = KafkaPythonRecords(data)
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("checksum")
        yield batch


def kafka_python_reads(codec: str) -> bool:
    """Whether the library it needs for that codec is installed; its lz4 is one that nothing else here uses."""
    return codec == "none" or (codec == "lz4" and has_lz4()) or (codec == "zstd" and has_zstd())


def interpreted_kernel() -> ModuleType:
    """The inner loop as it runs where there is no C compiler."""
    path = Path(remote_fetch.decode.__path__[0]) / "_columns.py"
    loader = SourceFileLoader("remote_fetch.decode._columns_interpreted", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def measure(contenders: dict[str, Callable[[], int]], records: int, rounds: int) -> dict[str, float]:
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


def row_of(segment: Segment, rounds: int) -> str:
    """One line of the table."""
    best = measure(
        {
            "copy": copy(segment),
            "loop": inner_loop(segment),
            "ours": whole_path(segment),
            "aiokafka": peer(segment, aiokafka_batches),
            **({"kafka-python": peer(segment, kafka_python_batches)} if kafka_python_reads(segment.codec) else {}),
        },
        segment.records,
        rounds,
    )
    ours = best["ours"]
    cells = [
        f"{segment.value_bytes:,}",
        segment.codec,
        f"{segment.size_mb} MB",
        f"{best['copy']:.0f}",
        f"{best['loop']:.0f}",
        f"{ours:.0f}",
        f"{len(segment.areas) / segment.records / ours:.2f}",
        f"{best['aiokafka']:,.0f}",
        f"{best['kafka-python']:,.0f}" if "kafka-python" in best else "-",
        f"{best['loop'] / best['copy']:.1f}",
        f"{best['aiokafka'] / ours:.1f}",
        f"{best['kafka-python'] / ours:.1f}" if "kafka-python" in best else "-",
    ]
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """What it was measured on."""
    model = platform.processor() or platform.machine()
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        lines = [line for line in cpu_info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("pyarrow", "aiokafka", "kafka-python")
    )
    decoder = "compiled" if is_compiled() else "interpreted"
    busy = f", load average {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{model}, {os.cpu_count()} cores{busy}, {platform.system()}, Python {platform.python_version()}, {versions}; "
        f"decoder: {decoder}."
    )


def report(sizes_mb: list[int], rounds: int) -> str:
    """The whole section: machine, table, the interpreted variant."""
    lines = [machine(), "", HEAD]
    for value_bytes in VALUE_BYTES:
        for codec in CODECS:
            for size_mb in sizes_mb:
                lines.append(row_of(make_segment(value_bytes, codec, size_mb), rounds))
                print(lines[-1], flush=True)
    kernel = interpreted_kernel()
    lines += ["", "Without a C compiler, whole path, uncompressed, 1 MB:", ""]
    for value_bytes in VALUE_BYTES:
        segment = make_segment(value_bytes, "none", 1)
        best = measure(
            {"interpreted": whole_path(segment, kernel), "aiokafka": peer(segment, aiokafka_batches)},
            segment.records,
            rounds,
        )
        ours, theirs = best["interpreted"], best["aiokafka"]
        lines.append(f"- {value_bytes:,} bytes a value: {ours:,.0f} ns a record, aiokafka {theirs:,.0f}.")
    return "\n".join(lines)


def write(section: str) -> None:
    """Put the section between the markers of the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(START, 1)
    _, after = rest.split(END, 1)
    DOCUMENT.write_text(f"{before}{START}\n{section}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4], metavar="MB", help="data sizes (default: 1 4)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds, the best of which counts (default: 2)")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance.md")
    arguments = parser.parse_args()
    print(HEAD)
    section = report(arguments.sizes, arguments.rounds)
    print()
    print(section)
    if arguments.write:
        write(section)


if __name__ == "__main__":
    main()

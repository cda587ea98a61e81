"""Memory that is used again, of columns and of decompressors: never while it is in use, and never beyond its bound."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from remote_fetch.decode.columns import COLUMNS
from remote_fetch.decode.resources import ColumnMemory
from remote_fetch.decode.run_decoder import Bounds, RunReader, Start
from remote_fetch.testing.records import Record, encode_batch
from tests.at_once import at_once

EVERYTHING = 2**63 - 1
START = Start(-1, 0, 0, EVERYTHING)
MIB = 1 << 20


@pytest.fixture
def memory(native_engine: ModuleType) -> ColumnMemory:
    """The memory of a session, as far as the native decoder is installed."""
    return ColumnMemory(16 * MIB)


def reader_with(memory: ColumnMemory | None, columns: Sequence[str] = COLUMNS) -> RunReader:
    return RunReader("topic", 3, columns, Bounds(0, 10_000, EVERYTHING, target_bytes=4 * MIB), memory=memory)


def log(byte: int, records: int = 16, value_bytes: int = 200_000) -> memoryview:
    """One batch whose values are a byte again and again, with headers and keys of that byte."""
    value, key = bytes([byte]) * value_bytes, bytes([byte]) * 9
    return memoryview(encode_batch(0, [Record(at, at, key, value, (("h", key),)) for at in range(records)]))


def read(reader: RunReader, data: memoryview) -> pa.RecordBatch:
    (batch,) = reader.read(data, 0, START, len(data)).rows.to_arrow()
    return batch


def address_of(batch: pa.RecordBatch) -> int:
    buffer = batch.column("value").buffers()[2]
    assert buffer is not None
    return buffer.address


def run_apart(program: str) -> None:
    """In a process of its own: in that of other tests, the C library may keep what they have left."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_memory_is_used_again_when_the_columns_are_dropped(memory: ColumnMemory) -> None:
    reader = reader_with(memory)
    addresses = set()
    for byte in range(20):
        batch = read(reader, log(byte))
        addresses.add(address_of(batch))
        del batch
    assert len(addresses) <= 2  # the first unit grows into its room


def test_memory_is_not_used_again_while_a_column_is_in_use(memory: ColumnMemory) -> None:
    """Also if only a slice of one column is left, or Arrow has handed it to another owner."""
    reader = reader_with(memory)
    expected, kept = list[pa.RecordBatch](), list[pa.RecordBatch]()
    values = list[tuple[int, list[Any]]]()
    for byte in range(12):
        data = log(byte)
        expected.append(read(reader_with(None), data))
        batch = read(reader, data)
        if byte % 3 == 0:
            kept.append(batch)
        elif byte % 3 == 1:
            values.append((byte, [batch.column("value").slice(7, 2)]))
        else:
            kept.append(pa.record_batch(batch))  # by the C data interface
        del batch
    assert kept == [batch for byte, batch in enumerate(expected) if byte % 3 != 1]
    for byte, (two,) in values:
        assert two.to_pylist() == [bytes([byte]) * 200_000] * 2


def test_threads_share_the_memory(memory: ColumnMemory) -> None:
    failures = list[str]()

    def work(byte: int) -> None:
        reader, held = reader_with(memory), list[pa.RecordBatch]()
        for turn in range(30):
            held.append(read(reader, log(byte, records=4 + turn % 5)))
            if len(held) > 2:
                batch = held.pop(0)
                if set(batch.column("value").to_pylist()) != {bytes([byte]) * 200_000}:
                    failures.append(f"thread {byte}, turn {turn}")

    at_once([partial(work, byte) for byte in range(4)])
    assert failures == []


BOUND = """
from tests.decode.test_column_memory import *
from tools.fuzz_memory import peak_bytes, reset_peak
reader, data = reader_with(ColumnMemory(16 * MIB)), log(1)
read(reader, data)
reset_peak()
before = peak_bytes()
held = [read(reader, data) for _ in range(60)]
assert peak_bytes() - before > 60 * MIB
held.clear()
reset_peak()
kept_bytes = peak_bytes() - before
assert kept_bytes < 40 * MIB, kept_bytes  # 16 MiB are kept, and the C library keeps some of its own
"""


def test_what_is_kept_has_a_bound(native_engine: ModuleType) -> None:
    run_apart(BOUND)


DECOMPRESSORS = """
from tests.decode.test_column_memory import *
from tools.fuzz_memory import peak_bytes, reset_peak
memory = ColumnMemory(MIB)
readers = [reader_with(memory, ("offset",)) for _ in range(32)]
usual = memoryview(encode_batch(0, [Record(0, 0, b"k", bytes(3 * MIB))], codec=4))
large = memoryview(encode_batch(0, [Record(0, 0, b"k", bytes(64 * MIB))], codec=4))
read(readers[0], usual)
reset_peak()
before = peak_bytes()
for data in (usual, large, usual):
    for reader in readers:
        read(reader, data)
    reset_peak()
    kept_bytes = peak_bytes() - before
    assert kept_bytes < 16 * MIB, kept_bytes
"""


def test_readers_share_decompressors_that_keep_no_more_than_usual_batches_need(native_engine: ModuleType) -> None:
    """A decompressor of each reader would keep 3 MiB, and one that had the large batch would keep 64."""
    run_apart(DECOMPRESSORS)


def test_columns_outlive_the_memory(memory: ColumnMemory) -> None:
    reader = reader_with(memory)
    held = [read(reader, log(byte)) for byte in range(3)]
    memory.close()
    later = read(reader, log(7))  # a thread that was still decoding
    for byte, batch in enumerate(held):
        assert batch == read(reader_with(None), log(byte))
    del held, batch
    assert later == read(reader_with(None), log(7))
    memory.close()


GUESS = """
from tests.decode.test_column_memory import *
from tools.fuzz_memory import limit_memory
limit_memory()
small = memoryview(encode_batch(0, [Record(0, 0, b"k", bytes(4 * MIB))], codec=4))
large = log(1, records=100)
assert len(large) > 2000 * len(small), (len(large), len(small))
reader = reader_with(ColumnMemory(16 * MIB))
assert [read(reader, data).num_rows for data in (small, large, small)] == [1, 100, 1]
"""


def test_a_small_batch_that_inflates_far_does_not_make_the_next_guess_huge(native_engine: ModuleType) -> None:
    """A unit of four MiB after one of a few hundred bytes would be guessed to need a hundred GB."""
    run_apart(GUESS)

"""Many batches in one step into the loop: the rows and the Arrow batches that single steps give."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pyarrow as pa
import pytest
from crc32c import crc32c

from remote_fetch.decode.batch_table import Field, new_table
from remote_fetch.decode.columns import COLUMNS, ColumnBuilder
from remote_fetch.decode.runs import Scanner
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer
from remote_fetch.formats.codecs import Codecs
from remote_fetch.testing.records import Record, encode_batch, rewrite_crc

EVERYTHING = 2**63 - 1
END = encode_batch(10_000, [Record(0)])
"""The batch that confirms the place of the last batch that counts."""


def batch(offset: int, count: int, *, codec: int = 0, value: bytes = b"v" * 20) -> bytes:
    return encode_batch(
        offset, [Record(at, at, b"k%d" % at, value, (("h", b"x"),)) for at in range(count)], codec=codec
    )


def mixed() -> list[bytes]:
    return [batch(10 * at, 1 + at % 7, codec=(0, 0, 3, 4)[at % 4]) for at in range(60)]


def scanned(batches: list[bytes]) -> tuple[memoryview, memoryview[int], int]:
    """The bytes, the table, and how many rows it has."""
    data, table = memoryview(b"".join([*batches, END])), new_table(100)
    scanner = Scanner(crc32c, 1 << 30, (0, EVERYTHING), EVERYTHING, (-1, -1), None)
    assert scanner.scan(data, 0, 1 << 30, (-1, 0), (0, EVERYTHING), table) == len(batches)
    return data, table, scanner.rows


def in_runs(
    builder: ColumnBuilder, batches: list[bytes], decompress: Callable[[int, memoryview], memoryview]
) -> tuple[int, list[pa.RecordBatch]]:
    """Append runs until no batch is taken. Returns the first batch not taken, and the Arrow batches."""
    data, table, rows = scanned(batches)
    at, found = 0, list[pa.RecordBatch]()
    while at < rows:
        stop, full = builder.append_run(data, table, at, rows, (3, 555), decompress)
        if stop == at and not full:
            break
        at, found = stop, [*found, *full]
    return at, found


def one_by_one(builder: ColumnBuilder, batches: list[bytes]) -> list[pa.RecordBatch]:
    framer, codecs, found = BatchFramer(0), Codecs(), list[pa.RecordBatch]()
    framer.feed(memoryview(b"".join(batches)))
    while (one := framer.next_batch()) is not None:
        area = codecs.decompress(one.header.codec, one.data[HEADER_BYTES:])
        found += builder.append(one.header, area, 3, 555)
    return found


def rest(builder: ColumnBuilder) -> list[pa.RecordBatch]:
    last = builder.flush()
    return [] if last is None else [last]


@pytest.mark.parametrize(
    ("target_bytes", "max_rows"), [(1 << 20, 65_536), (500, 1000), (90, 1000), (1 << 20, 5), (1, 1)]
)
def test_a_run_gives_the_rows_of_single_batches(kernel: ModuleType, target_bytes: int, max_rows: int) -> None:
    sizes = {"target_bytes": target_bytes, "max_rows": max_rows}
    run = ColumnBuilder("topic", 0, COLUMNS, kernel=kernel, **sizes)
    single = ColumnBuilder("topic", 0, COLUMNS, kernel=kernel, **sizes)
    at, found = in_runs(run, mixed(), Codecs().decompress)
    assert at == 60
    found += rest(run)
    wanted = [*one_by_one(single, mixed()), *rest(single)]
    assert [one.num_rows for one in found if one.num_rows] == [one.num_rows for one in wanted if one.num_rows]
    assert pa.Table.from_batches(found) == pa.Table.from_batches(wanted)
    for one in found:
        one.validate(full=True)


@pytest.mark.parametrize("codec", [0, 3])
def test_it_ends_before_a_batch_that_is_damaged_inside(kernel: ModuleType, codec: int) -> None:
    batches = mixed()
    area = bytearray(batch(200, 3))
    area[HEADER_BYTES] = 0xFF
    broken = batch(200, 3, codec=codec)[:-6] + b"\xff" * 6 if codec else bytes(area)
    batches[20] = rewrite_crc(broken)
    builder = ColumnBuilder("topic", 0, COLUMNS, kernel=kernel)
    at, found = in_runs(builder, batches, Codecs().decompress)
    assert (at, found) == (20, [])
    last = builder.flush()
    assert last is not None
    wanted = ColumnBuilder("topic", 0, COLUMNS, kernel=kernel)
    assert one_by_one(wanted, batches[:20]) == []
    assert last == wanted.flush()


def test_full_arrow_batches_are_returned_before_more_is_inflated(kernel: ModuleType) -> None:
    """However many batches a step finds, no more of them is in memory than goes into an Arrow batch or two."""
    inflated: list[int] = []

    def decompress(codec: int, data: memoryview) -> memoryview:
        inflated.append(codec)
        return Codecs().decompress(codec, data)

    data, table, rows = scanned([batch(10 * at, 5, codec=3, value=b"v" * 1000) for at in range(20)])
    builder = ColumnBuilder("topic", 0, COLUMNS, kernel=kernel, target_bytes=2000)
    at = 0
    for done in range(1, rows + 1):
        at, full = builder.append_run(data, table, at, rows, (0, EVERYTHING), decompress)
        assert (at, len(inflated), sum(one.num_rows for one in full)) == (done, done, 5)


def test_an_error_that_is_none_of_ours_comes_out(kernel: ModuleType) -> None:
    def decompress(codec: int, data: memoryview) -> memoryview:
        raise KeyboardInterrupt

    builder = ColumnBuilder("topic", 0, COLUMNS, kernel=kernel)
    with pytest.raises(KeyboardInterrupt):
        in_runs(builder, mixed(), decompress)
    last = builder.flush()
    assert last is not None
    assert last.column("offset").to_pylist() == [10, 11]  # what came before, all of it


def test_a_table_that_lies_is_corrupt(kernel: ModuleType) -> None:
    data, table, _ = scanned(mixed())
    for field, value in ((Field.AREA, -1), (Field.AREA_END, len(data) + 1), (Field.COUNT, -1), (Field.COUNT, 2**40)):
        before = table[field]
        table[field] = value
        builder = ColumnBuilder("topic", 0, COLUMNS, kernel=kernel)
        assert builder.append_run(data, table, 0, 1, (0, EVERYTHING), Codecs().decompress) == (0, [])
        table[field] = before

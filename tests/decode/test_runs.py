"""The walk over headers, compiled and interpreted: the batches that a run takes, and those before which it ends."""

from __future__ import annotations

import importlib.util
import sys
from array import array
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c

import remote_fetch.decode
from remote_fetch.decode import _shadow
from remote_fetch.decode.batch_table import FIELDS, Field, new_table
from remote_fetch.testing.records import Record, encode_batch, encode_legacy, encode_marker, rewrite_crc
from tests.cases import each_of

EVERYTHING = 2**63 - 1


def batch(offset: int, count: int = 2, **options: Any) -> bytes:
    return encode_batch(offset, [Record(at, at, b"k", b"value") for at in range(count)], **options)


class Walk:
    """One step of a scanner over some batches, and what it tells."""

    def __init__(
        self,
        kernel: ModuleType,
        batches: Sequence[bytes],
        *,
        at: int = 0,
        step_bytes: int = 1 << 20,
        rows: int = 100,
        max_batch_bytes: int = 1 << 20,
        segment: tuple[int, int] = (0, 10_000),
        stop_offset: int = EVERYTHING,
        entries: tuple[int, int] = (-1, -1),
        hidden: Sequence[tuple[int, int, int]] | None = None,
        offsets: tuple[int, int] = (-1, 0),
        epochs: tuple[int, int] = (0, EVERYTHING),
        checksum: Callable[[memoryview], int] = crc32c,
    ) -> None:
        aborted = (
            None if hidden is None else tuple(array("q", [entry[place] for entry in hidden]) for place in range(3))
        )
        scanner = kernel.Scanner(checksum, max_batch_bytes, segment, stop_offset, entries, aborted)
        table = new_table(rows)
        self.data = b"".join(batches)
        self.taken = scanner.scan(memoryview(self.data), at, step_bytes, offsets, epochs, table)
        assert self.taken == scanner.taken
        self.position, self.last_offset = scanner.position, scanner.last_offset
        self.rows = [{field.name: table[row * FIELDS + field] for field in Field} for row in range(scanner.rows)]

    @property
    def bases(self) -> list[int]:
        return [row["BASE_OFFSET"] for row in self.rows]


def test_the_rows_of_a_run(run_kernel: ModuleType) -> None:
    first = batch(5, 3, base_timestamp_ms=1000, leader_epoch=4)
    second = batch(10, 1, codec=3, log_append_time_ms=777, leader_epoch=4)
    third = batch(12, 1, leader_epoch=4)
    walk = Walk(run_kernel, [b"abc", first, second, third], at=3, epochs=(4, EVERYTHING))
    assert (walk.taken, walk.position, walk.last_offset) == (2, 3 + len(first) + len(second), 10)
    start = 3 + len(first)
    assert walk.rows == [
        {"AREA": 3 + 61, "AREA_END": start, "CODEC": 0, "COUNT": 3, "BASE_OFFSET": 5, "LAST_OFFSET": 7, "BASE_MS": 1000,
         "TIMESTAMP_TYPE": 0, "EPOCH": 4, "PRODUCER_ID": -1, "AT": 3, "PREVIOUS_OFFSET": -1},
        {"AREA": start + 61, "AREA_END": start + len(second), "CODEC": 3, "COUNT": 1, "BASE_OFFSET": 10,
         "LAST_OFFSET": 10, "BASE_MS": 777, "TIMESTAMP_TYPE": 1, "EPOCH": 4, "PRODUCER_ID": -1, "AT": start,
         "PREVIOUS_OFFSET": 7},
    ]  # fmt: skip


def changed(data: bytes, at: int, value: int, size: int) -> bytes:
    """The batch with one field changed, and its checksum right."""
    return rewrite_crc(data[:at] + value.to_bytes(size, "big", signed=True) + data[at + size :])


GOOD = batch(2)
LAST = batch(50)

Special = dict[str, tuple[bytes, dict[str, Any]]]

UNUSUAL: Special = {
    "a wrong checksum": (GOOD[:-1] + b"\xff", {}),
    "another epoch": (batch(2, leader_epoch=1), {}),
    "no epoch": (batch(2, leader_epoch=-1), {}),
    "the end of an epoch": (GOOD, {"epochs": (0, 2)}),
    "the end of what is wanted": (GOOD, {"stop_offset": 2}),
    "a codec that does not exist": (changed(GOOD, 21, 5, 2), {}),
    "a negative count": (changed(GOOD, 57, -1, 4), {}),
    "a marker, read_committed": (encode_marker(2, 7, commit=True), {"hidden": []}),
    "a transaction of nobody": (changed(GOOD, 21, 0x10, 2), {"hidden": []}),
}

MISPLACED: Special = {
    "a damaged length": (GOOD[:8] + b"\0\0\0\x10" + GOOD[12:], {}),
    "a negative length": (GOOD[:8] + b"\xff\0\0\0" + GOOD[12:], {}),
    "a length past the data": (GOOD[:8] + b"\x7f\0\0\0" + GOOD[12:], {"max_batch_bytes": 2**31 - 1}),
    "a batch too large": (batch(2, 100), {"max_batch_bytes": 200}),
    "a legacy message": (encode_legacy(2, [Record(0, 0, None, b"v" * 60)], magic=1), {}),
    "an offset again": (batch(1), {}),
    "an offset past the segment": (GOOD, {"segment": (0, 2)}),
    "an index entry inside": (batch(2, 3), {"entries": (3, -1)}),
    "the other index entry inside": (batch(2, 3), {"entries": (-1, 3)}),
    "a negative delta": (changed(GOOD, 23, -1, 4), {}),
}


@each_of("name", UNUSUAL)
def test_a_run_ends_before(run_kernel: ModuleType, name: str) -> None:
    special, options = UNUSUAL[name]
    walk = Walk(run_kernel, [batch(0, 1), batch(1, 1), special, LAST], **options)
    assert (walk.bases, walk.last_offset) == ([0, 1], 1)
    assert walk.position == 2 * len(batch(0, 1))


@each_of("name", MISPLACED)
def test_where_the_place_of_a_batch_is_in_doubt_so_is_the_one_before_it(run_kernel: ModuleType, name: str) -> None:
    special, options = MISPLACED[name]
    walk = Walk(run_kernel, [batch(0, 1), batch(1, 1), special, LAST], **options)
    assert (walk.bases, walk.last_offset, walk.position) == ([0], 0, len(batch(0, 1)))
    assert Walk(run_kernel, [special, LAST], offsets=(1, 0), **options).taken == 0


def test_the_last_batch_is_left_because_none_confirms_it(run_kernel: ModuleType) -> None:
    assert Walk(run_kernel, [batch(0), batch(2)]).bases == [0]
    assert Walk(run_kernel, [batch(0), batch(2)[:-1]]).bases == []
    assert Walk(run_kernel, [batch(0)]).taken == 0
    for cut in (0, 8, 16, 60):
        assert Walk(run_kernel, [batch(0)[:cut]]).taken == 0


def test_a_step_has_bounds(run_kernel: ModuleType) -> None:
    many = [batch(2 * at) for at in range(20)]
    assert Walk(run_kernel, many, rows=3).bases == [0, 2, 4]
    assert Walk(run_kernel, many, step_bytes=1).bases == [0]
    assert Walk(run_kernel, many, step_bytes=len(many[0]) + 1).bases == [0, 2]
    assert Walk(run_kernel, many, rows=0).taken == 0


def test_hidden_batches_are_walked_over(run_kernel: ModuleType) -> None:
    batches = [batch(0), batch(2), encode_marker(4, 7, commit=False), batch(5, 0, last_offset_delta=3), batch(9), LAST]
    walk = Walk(run_kernel, batches, offsets=(-1, 2))
    assert (walk.taken, walk.bases, walk.last_offset) == (5, [2, 9], 10)
    assert [row["PREVIOUS_OFFSET"] for row in walk.rows] == [1, 8]


def test_aborted_transactions_are_hidden(run_kernel: ModuleType) -> None:
    def of(offset: int, producer: int) -> bytes:
        return batch(offset, producer_id=producer, producer_epoch=0, transactional=True)

    producers = [7, 8, 7, 6, 7, 9, 8]
    batches = [of(2 * at, producer) for at, producer in enumerate(producers)]
    batches += [batch(14, producer_id=7, producer_epoch=0), LAST]
    hidden = [(7, 0, 2), (7, 8, 20), (8, 12, 13), (9, 11, 30)]
    walk = Walk(run_kernel, batches, hidden=hidden)
    # Producer 9 began its aborted transaction after the batch at 10; what is not transactional is seen.
    assert walk.bases == [2, 4, 6, 10, 14]
    assert [row["PRODUCER_ID"] for row in walk.rows] == [8, 7, 6, 9, -1]
    assert walk.taken == 8
    assert Walk(run_kernel, batches, hidden=[]).bases == [0, 2, 4, 6, 8, 10, 12, 14]
    uncommitted = Walk(run_kernel, batches)
    assert (len(uncommitted.rows), {row["PRODUCER_ID"] for row in uncommitted.rows}) == (8, {-1})


def test_offsets_at_the_edge_of_64_bits(run_kernel: ModuleType) -> None:
    edge = 2**63 - 4
    segment = (0, EVERYTHING)
    assert Walk(run_kernel, [batch(edge, 1), batch(edge + 1, 1)], segment=segment).bases == [edge]
    assert Walk(run_kernel, [batch(edge, 1), changed(batch(0, 3), 0, edge + 1, 8)], segment=segment).bases == []
    assert Walk(run_kernel, [changed(batch(0, 1), 0, -1, 8), LAST], segment=segment).bases == []


def test_an_error_of_the_checksum_is_raised(run_kernel: ModuleType) -> None:
    def interrupted(data: memoryview) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Walk(run_kernel, [batch(0), LAST], checksum=interrupted)


def test_the_source_runs_where_cython_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cython", None)
    path = Path(remote_fetch.decode.__path__[0]) / "runs.py"
    loader = SourceFileLoader("remote_fetch.decode.runs_without_cython", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    kernel = importlib.util.module_from_spec(spec)
    loader.exec_module(kernel)
    assert kernel.cython is _shadow
    assert Walk(kernel, [batch(0), LAST]).bases == [0]

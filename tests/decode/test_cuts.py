"""Where a unit of batches is cut by headers alone, natively and in plain Python.

Rules of the file: every test runs with both decoders. The cases of single batches are those of test_run_decoder.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from remote_fetch.decode.columns import COLUMNS
from remote_fetch.decode.run_decoder import Bounds, Cut, RunReader, Start
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.testing.records import HEADER_BYTES, encode_marker
from tests.cases import each_of
from tests.decode.test_run_decoder import ENDED_BEFORE, EVERYTHING, LAST, MISPLACED, batch, changed, column, read


def reader_of(engine: ModuleType, **bounds: Any) -> RunReader:
    every = Bounds(**{"segment_start": 0, "segment_end": 10_000, "stop_offset": EVERYTHING, **bounds})
    return RunReader("topic", 3, COLUMNS, every, engine=engine)


def cut(
    engine: ModuleType,
    batches: Sequence[bytes],
    size_bytes: int = 1 << 20,
    *,
    at: int = 0,
    last_offset: int = -1,
    epoch_stop: int = EVERYTHING,
    **bounds: Any,
) -> Cut:
    start = Start(last_offset, 0, 0, epoch_stop)
    return reader_of(engine, **bounds).cut(memoryview(b"".join(batches)), at, start, size_bytes)


@each_of("size", [1, 2, 5])
def test_a_cut_ends_with_the_batch_that_reaches_its_size(engine: ModuleType, size: int) -> None:
    batches = [batch(2 * at) for at in range(8)]
    size_bytes = sum(map(len, batches[:size]))
    found = cut(engine, batches, size_bytes)
    assert found == (size_bytes, 2 * size - 1, size, True)
    assert cut(engine, batches, size_bytes - len(batches[0]) + 1) == found
    assert cut(engine, batches, size_bytes + 1).taken == size + 1
    assert cut(engine, batches, max_rows=2 * size) == found
    assert cut(engine, batches, max_rows=2 * size - 1) == found
    assert cut(engine, batches, max_rows=2 * size + 1).taken == size + 1


def test_a_cut_begins_anywhere_in_the_bytes(engine: ModuleType) -> None:
    batches = [batch(2 * at) for at in range(4)]
    size_bytes = len(batches[0])
    whole = cut(engine, [b"abc", *batches], 2 * size_bytes, at=3)
    assert whole == (3 + 2 * size_bytes, 3, 2, True)
    assert cut(engine, [b"abc", *batches], at=3 + size_bytes, last_offset=1) == (3 + 3 * size_bytes, 5, 2, True)
    assert cut(engine, batches, at=4 * size_bytes) == (4 * size_bytes, -1, 0, False)
    assert cut(engine, batches, at=10_000).taken == 0


def test_a_last_batch_that_no_header_confirms_is_cut_off(engine: ModuleType) -> None:
    batches = [batch(2 * at) for at in range(3)]
    both = sum(map(len, batches[:2]))
    assert cut(engine, batches) == (both, 3, 2, True)
    assert cut(engine, [*batches, LAST[:60]]) == (both, 3, 2, True)
    assert cut(engine, [*batches[:2], batch(1)]) == (len(batches[0]), 1, 1, True)
    assert cut(engine, batches[:1]) == (len(batches[0]), 1, 1, False)
    assert cut(engine, [batches[0], batch(1)]) == (len(batches[0]), 1, 1, False)
    for end in (0, 8, 16, 60):
        assert cut(engine, [LAST[:end]]) == (0, -1, 0, False)


def test_the_header_of_a_batch_that_is_cut_off_confirms_the_one_before_it(engine: ModuleType) -> None:
    batches = [batch(2 * at) for at in range(3)]
    for end in (HEADER_BYTES, len(LAST) - 1):
        assert cut(engine, [*batches, LAST[:end]]) == (sum(map(len, batches)), 5, 3, True)
        assert cut(engine, [LAST[:end]]) == (0, -1, 0, True)


def test_a_last_batch_that_no_header_confirms_is_left_out_of_a_full_cut_too(engine: ModuleType) -> None:
    """Its size is enough, and still nothing shows that its offsets are right."""
    batches = [batch(0), batch(2)]
    assert cut(engine, batches, sum(map(len, batches))) == (len(batches[0]), 1, 1, True)
    assert cut(engine, batches, max_rows=4) == (len(batches[0]), 1, 1, True)
    assert cut(engine, batches[:1], 1) == (len(batches[0]), 1, 1, False)


@each_of("name", ENDED_BEFORE)
def test_a_cut_ends_before_what_plain_python_decides(engine: ModuleType, name: str) -> None:
    special, options, status = ENDED_BEFORE[name]
    found = cut(engine, [batch(0, 1), batch(1, 1), special, LAST], **options)
    if status is RunStatus.SPECIAL:
        assert found == (2 * len(batch(0, 1)), 1, 2, True)
        assert cut(engine, [special, LAST], last_offset=1, **options) == (0, 1, 0, True)
    else:  # the header does not tell that the batch is damaged
        assert found == (2 * len(batch(0, 1)) + len(special), 2 + last_delta(special), 3, True)


def last_delta(data: bytes) -> int:
    return int.from_bytes(data[23:27], "big")


@each_of("name", MISPLACED)
def test_a_cut_leaves_out_a_batch_that_is_in_doubt(engine: ModuleType, name: str) -> None:
    special, options, status = MISPLACED[name]
    tail = [] if status is RunStatus.END else [LAST]
    found = cut(engine, [batch(0, 1), batch(1, 1), special, *tail], **options)
    assert found == (len(batch(0, 1)), 0, 1, True)
    alone = cut(engine, [batch(1, 1), special, *tail], last_offset=0, **options)
    assert alone == (len(batch(1, 1)), 1, 1, False)
    assert cut(engine, [special, *tail], last_offset=1, **options) == (0, 1, 0, False)


def test_batches_of_which_nothing_is_shown_are_cut_with_the_others(engine: ModuleType) -> None:
    batches = [batch(0), encode_marker(2, 7, commit=False), batch(3, 0, last_offset_delta=3), batch(8), LAST]
    assert cut(engine, batches)[1:] == (9, 4, True)
    assert cut(engine, batches, aborted=[])[1:] == (9, 4, True)


def test_offsets_at_the_edge_of_64_bits(engine: ModuleType) -> None:
    edge = 2**63 - 4
    fits, too_far = [batch(edge, 1), batch(edge + 1, 1)], [batch(edge, 1), changed(batch(0, 3), 0, edge + 1, 8)]
    negative = [changed(batch(0, 1), 0, -1, 8), LAST]
    last: dict[str, Any] = {"segment_end": EVERYTHING}
    assert cut(engine, [*fits, batch(edge + 2, 1)], **last)[1:] == (edge + 1, 2, True)
    assert cut(engine, too_far, **last)[1:] == (edge, 1, False)
    assert cut(engine, negative, **last).taken == 0
    assert cut(engine, negative, last_offset=-2, segment_start=-5, **last).taken == 0
    assert column(read(engine, fits, **last), "offset") == [edge]
    assert read(engine, too_far, **last).status is RunStatus.MISPLACED
    assert read(engine, negative, **last).status is RunStatus.MISPLACED


@each_of("size_bytes", [1, 300, 1000, 1 << 20])
def test_a_run_takes_what_was_cut(engine: ModuleType, size_bytes: int) -> None:
    batches = [batch(2 * at, codec=at % 5) for at in range(10)]
    data, reader, start = memoryview(b"".join(batches)), reader_of(engine), Start(-1, 0, 0, EVERYTHING)
    at, rows = 0, 0
    while (found := reader.cut(data, at, start, size_bytes)).taken:
        run = reader.read(data, at, start, found.position)
        assert (run.position, run.last_offset, run.taken, run.status) == (*found[:3], RunStatus.END)
        at, start = run.position, start._replace(last_offset=run.last_offset)
        rows += sum(one.num_rows for one in run.rows.to_arrow())
    assert (at, rows) == (len(data), 20)

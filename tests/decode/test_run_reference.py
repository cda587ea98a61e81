"""The native run decoder, the plain one, and the decoder of single batches: the same answer to the same bytes.

Rules of the file: `tools.fuzz_runs` compares; where no native decoder was built, the other two are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode import run_reference
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.decode.record_reference import Ended
from remote_fetch.decode.run_decoder import Bounds, RunReader, Start
from remote_fetch.decode.run_status import RunStatus
from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record, encode_batch
from remote_fetch.testing.strategies import logs
from tests.scan.test_units import damaged
from tests.searches import examples
from tools import fuzz_runs
from tools.fuzz_runs import read_both
from tools.fuzz_targets import GOLDENS

EVERYTHING = 2**63 - 1


def test_what_brokers_wrote() -> None:
    rows = 0
    for path in sorted(GOLDENS.rglob("*.log")):
        index = path.with_suffix(".txnindex")
        entries = parse_transaction_index(index.read_bytes()) if index.exists() else ()
        aborted = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]
        for hidden in (None, aborted):
            for run in read_both(path.read_bytes(), Bounds(0, EVERYTHING - 1, EVERYTHING, aborted=hidden)):
                assert run.status in (RunStatus.END, RunStatus.SPECIAL)
                rows += sum(batch.num_rows for batch in run.rows.to_arrow())
    assert rows > 1000


@pytest.mark.parametrize("columns", [["offset"], ["value"]])
def test_rows_without_bytes_are_rows_too(columns: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that does not fit beside the rows before it ends the run, also if no column of those has bytes."""
    small, large = encode_batch(0, [Record(0)]), encode_batch(1, [Record(0, value=b"v" * 100)])
    monkeypatch.setattr(run_reference, "MAX_COLUMN_BYTES", 50)
    bounds = Bounds(0, EVERYTHING - 1, EVERYTHING)
    reader = RunReader("topic", 3, columns, bounds, engine=run_reference)
    data = memoryview(small + large + encode_batch(2, [Record(0)]))  # the last one confirms the place of the second
    run = reader.read(data, 0, Start(-1, 0, 0, EVERYTHING))
    assert (run.status, run.taken) == (RunStatus.FULL, 1)
    run = reader.read(data, run.position, Start(run.last_offset, 0, 0, EVERYTHING))
    assert (run.status, run.taken) == (RunStatus.TOO_LARGE, 0)


columns_of_a_read = st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)


@examples(80)
@given(
    log=logs(),
    columns=columns_of_a_read,
    sizes=st.sampled_from([(1, 1), (60, 3), (1 << 20, 65_536)]),
    window=st.tuples(st.integers(0, 1100), st.integers(0, 40)),
    aborted=st.none() | st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1000), st.integers(0, 20)), max_size=4),
    damage=st.none() | st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255), st.booleans()),
)
def test_logs_whole_and_damaged(
    log: LogBuilder,
    columns: Sequence[str],
    sizes: tuple[int, int],
    window: tuple[int, int],
    aborted: list[tuple[int, int, int]] | None,
    damage: tuple[float, int, bool] | None,
) -> None:
    data = b"".join(batch.data for batch in log.batches)
    if damage is not None and data:
        data = damaged(data, *damage)
    hidden = None if aborted is None else _apart([(one, first, first + span) for one, first, span in aborted])
    bounds = Bounds(
        0, EVERYTHING - 1, window[0] + window[1], aborted=hidden, target_bytes=sizes[0], max_rows=sizes[1]
    )  # fmt: skip
    for _ in read_both(data, bounds, columns=columns, first_offset=window[0]):
        pass


def _apart(aborted: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The transactions that begin after the one before them of the same producer has ended, as in a log."""
    kept: list[tuple[int, int, int]] = []
    for producer, first, last in sorted(aborted):
        if not kept or kept[-1][0] != producer or kept[-1][2] < first:
            kept.append((producer, first, last))
    return kept


def test_the_comparison_notices_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain decoder of runs that loses its last row differs from the decoder of single batches."""
    data = encode_batch(0, [Record(0), Record(1)])
    bounds = Bounds(0, EVERYTHING - 1, EVERYTHING)
    assert [run.taken for run in read_both(data, bounds)] == [1]
    rows_of = run_reference.RunDecoder._rows
    monkeypatch.setattr(run_reference.RunDecoder, "_rows", lambda *arguments: rows_of(*arguments)[:-1])
    with pytest.raises(AssertionError):
        list(read_both(data, bounds))
    monkeypatch.setattr(fuzz_runs, "engines", lambda: (run_reference,))
    with pytest.raises(AssertionError, match="one by one: 1"):
        list(read_both(data, bounds))


def test_the_comparison_notices_a_batch_that_is_refused_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_batch(0, [Record(0), Record(1)])

    def refuse(*_: Any) -> None:
        raise Ended(RunStatus.BAD_COUNT)

    monkeypatch.setattr(run_reference.RunDecoder, "_rows", refuse)
    monkeypatch.setattr(fuzz_runs, "engines", lambda: (run_reference,))
    with pytest.raises(AssertionError, match="only a run refuses"):
        list(read_both(data, Bounds(0, EVERYTHING - 1, EVERYTHING)))

"""Two threads that decode beside two processes that decode, for the run decoder and for the reader of slices.

Rules of the file:

- Each thread and each process reads the same segment, in memory, as often. A barrier lets both begin at once.
- The wall time until both have ended counts, the least of several rounds. The kinds take turns in a round.
- Two processes share nothing but the machine, so they are what two threads could reach.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

from tests.benchmarks import work
from tests.benchmarks.document import machine

HEAD = (
    "| value bytes | batch | codec | runs, one thread | two threads | two processes | processes / threads "
    "| ours, one thread | two threads | two processes | processes / threads |\n|" + "---|" * 11
)
CONTENDERS: dict[str, Callable[[work.Segment], Callable[[], int]]] = {"runs": work.runs, "ours": work.ours}
TIMEOUT_S = 600
_CONTEXT = multiprocessing.get_context("spawn")


class Case(NamedTuple):
    """One line of the table."""

    value_bytes: int
    batch: str
    codec: str


BATCHES: dict[str, Any] = {
    "3 records": {"batch_records": 3},
    "10 records": {"batch_records": 10},
    "16 KB": {"batch_bytes": 16_384},
    "1 MB": {"batch_bytes": 1_000_000},
}


def cases() -> Iterator[Case]:
    """Value size, codec and batch size in all combinations."""
    for value_bytes in (100, 1000):
        for batch in BATCHES:
            for codec in ("none", "lz4", "zstd", "snappy"):
                yield Case(value_bytes, batch, codec)


def segment_of(case: Case, size_mb: int) -> work.Segment:
    """The segment of a line; the same in every process."""
    return work.make_segment(case.value_bytes, case.codec, size_mb, **BATCHES[case.batch])


def timed(run: Callable[[], int], times: int, wait: Callable[[], object]) -> float:
    """Seconds from the moment at which all begin."""
    run()
    wait()
    start = time.perf_counter()
    for _ in range(times):
        run()
    return time.perf_counter() - start


def in_threads(runs: list[Callable[[], int]], times: int) -> float:
    """Each in a thread of its own."""
    barrier = threading.Barrier(len(runs))
    with ThreadPoolExecutor(len(runs)) as pool:
        return max(pool.map(lambda run: timed(run, times, lambda: barrier.wait(TIMEOUT_S)), runs))


def _process(case: Case, size_mb: int, times: int, rounds: int, barrier: Barrier, results: object) -> None:
    segment = segment_of(case, size_mb)
    for _ in range(rounds):
        for name, make in CONTENDERS.items():
            barrier.wait(TIMEOUT_S)  # the threads' turn
            took = timed(make(segment), times, lambda: barrier.wait(TIMEOUT_S))
            results.put((name, took))  # type: ignore[attr-defined]
            barrier.wait(TIMEOUT_S)


def row_of(case: Case, size_mb: int, times: int, rounds: int) -> str:
    """One line of the table: nanoseconds of wall time for each record that one thread or process reads."""
    segment = segment_of(case, size_mb)
    barrier, results = _CONTEXT.Barrier(3), _CONTEXT.Queue()
    arguments = (case, size_mb, times, rounds, barrier, results)
    processes = [_CONTEXT.Process(target=_process, args=arguments, daemon=True) for _ in range(2)]
    for process in processes:
        process.start()
    least: dict[tuple[str, str], float] = {}

    def note(name: str, kind: str, took: float) -> None:
        least[name, kind] = min(least.get((name, kind), took), took)

    for _ in range(rounds):
        for name, make in CONTENDERS.items():
            note(name, "one", in_threads([make(segment)], times))
            note(name, "threads", in_threads([make(segment), make(segment)], times))
            for _ in range(3):
                barrier.wait(TIMEOUT_S)
            note(name, "processes", max(results.get(timeout=TIMEOUT_S)[1] for _ in processes))
    for process in processes:
        process.join(TIMEOUT_S)
    cells = [f"{case.value_bytes:,}", case.batch, case.codec]
    for name in CONTENDERS:
        kinds = [least[name, kind] for kind in ("one", "threads", "processes")]
        cells += [f"{took * 1e9 / times / segment.records:,.0f}" for took in kinds]
        cells.append(f"{kinds[2] / kinds[1]:.2f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8, metavar="MB", help="of the segment (default: %(default)s)")
    parser.add_argument("--times", type=int, default=3, help="how often it is read in a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="of which the best counts (default: %(default)s)")
    arguments = parser.parse_args()
    print(machine("pyarrow"), "", HEAD, sep="\n")
    for case in cases():
        print(row_of(case, arguments.size, arguments.times, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()

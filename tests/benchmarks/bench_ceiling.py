"""The limit of a machine: one decoding process for each processor, beside `read_arrow`.

Rules of the file:

- One real broker tiers the topics to a directory. All readers have the directory alone.
- The segments are shared out among the processes by size. No process waits for another one, and none hands rows over.
- *From memory*: a process has its bytes before the clock starts. *From files*: it reads pieces of 4 MiB, into memory
  that it uses again.
- All processes begin at once. The time until the last one ends counts, the best of several rounds after one to warm up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from remote_fetch.decode.columns import DEFAULT_COLUMNS
from remote_fetch.formats.codecs import Codecs
from tests.benchmarks.bench_broker import Shape, add_shape_options, fill, large_batches, measured_on, run_reader
from tests.benchmarks.on_a_broker import add_options, run
from tests.benchmarks.peers import Job, decoded, segments
from tests.rig.rig import Rig

OURS = "read_arrow, bucket alone"
HEAD = (
    "| value bytes | codec | batches | partitions | MB | from memory, one | all | from files, one | all | read_arrow "
    "| read_arrow / from files, all |\n|---|---|---|---|---|---|---|---|---|---|---|"
)
PIECE_BYTES = 4 << 20
PIECES = 3
TIMEOUT_S = 600
_CONTEXT = multiprocessing.get_context("spawn")


def shared_out(files: Sequence[Path], shares: int) -> list[list[Path]]:
    """The files in shares of about equal size, the largest file first."""
    found: list[list[Path]] = [[] for _ in range(shares)]
    sizes = [0] * shares
    for path in sorted(files, key=lambda path: path.stat().st_size, reverse=True):
        least = sizes.index(min(sizes))
        found[least].append(path)
        sizes[least] += path.stat().st_size
    return found


def pieces(path: Path, memory: Iterator[memoryview]) -> Iterator[memoryview]:
    """The bytes of a file, a piece after the other."""
    with open(path, "rb", buffering=0) as file:
        for piece in memory:
            size_bytes = file.readinto(piece)
            if not size_bytes:
                return
            yield piece[:size_bytes]


def decode(
    files: Sequence[Path], columns: Sequence[str], from_memory: bool, rounds: int, barrier: Barrier, totals: Any
) -> None:
    """One process: its files in each round, and how many records they had."""
    memory = cycle([memoryview(bytearray(PIECE_BYTES)) for _ in range(PIECES)])
    held = {path: memoryview(path.read_bytes()) for path in files} if from_memory else {}
    codecs = Codecs()
    for _ in range(rounds + 1):
        barrier.wait(TIMEOUT_S)
        records = 0
        for path in files:
            data = [held[path]] if from_memory else pieces(path, memory)
            records += sum(batch.num_rows for batch in decoded(data, codecs, "topic", columns))
        barrier.wait(TIMEOUT_S)
        totals.put(records)


def best_s(
    files: Sequence[Path], columns: Sequence[str], records: int, shares: int, from_memory: bool, rounds: int
) -> float:
    """The seconds that `shares` processes take. Raises ValueError if they do not find all records."""
    barrier, totals = _CONTEXT.Barrier(shares + 1), _CONTEXT.Queue()
    processes = [
        _CONTEXT.Process(target=decode, args=(share, columns, from_memory, rounds, barrier, totals), daemon=True)
        for share in shared_out(files, shares)
    ]
    for process in processes:
        process.start()
    took: list[float] = []
    for _ in range(rounds + 1):
        barrier.wait(TIMEOUT_S)
        began_s = time.perf_counter()
        barrier.wait(TIMEOUT_S)
        took.append(time.perf_counter() - began_s)
        found = sum(totals.get(timeout=TIMEOUT_S) for _ in processes)
        if found != records:
            raise ValueError(f"{found} of {records} records")
    for process in processes:
        process.join(TIMEOUT_S)
    return min(took[1:])


def row_of(rig: Rig, shape: Shape, size_mb: int, rounds: int, columns: Sequence[str]) -> str:
    """One line of the table, in seconds a gigabyte of values."""
    records, topic = (size_mb << 20) // shape.value_bytes, f"{shape.value_bytes}-{shape.codec}-{size_mb}"
    value_bytes = records * shape.value_bytes
    fill(rig, topic, shape, records)
    files = segments(rig.remote, topic)
    took = [
        best_s(files, columns, records, shares, from_memory, rounds)
        for from_memory in (True, False)
        for shares in (1, os.cpu_count() or 1)
    ]
    pid = rig.nodes[1].pid
    job = Job(OURS, topic, shape.partitions, records, value_bytes, rounds, rig.bootstrap, str(rig.remote), pid)
    ours_s = run_reader(job).wall_s
    cells = [f"{seconds / value_bytes * 1e9:.2f}" for seconds in (*took, ours_s)]
    return f"| {shape} | {size_mb} | {' | '.join(cells)} | **{ours_s / took[-1]:.2f}** |"


def report(rig: Rig, shapes: Sequence[Shape], sizes_mb: Sequence[int], rounds: int, columns: Sequence[str]) -> str:
    """The machine and the table, in seconds a gigabyte."""
    rows = []
    for shape in shapes:
        for size_mb in sizes_mb:
            rows.append(row_of(rig, shape, size_mb, rounds, columns))
            print(rows[-1], flush=True)
    return "\n".join([measured_on(rig), "", HEAD, *rows])


def main() -> int:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 1024], metavar="MB", help="of values (256 1024)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts, after one to warm up (3)")
    parser.add_argument("--without", choices=DEFAULT_COLUMNS, help="a column that the processes do not make")
    add_shape_options(parser)
    add_options(parser)
    arguments = parser.parse_args()
    shapes = list(large_batches(arguments, [1]))
    columns = [name for name in DEFAULT_COLUMNS if name != arguments.without]
    return run(
        "bench_ceiling",
        arguments,
        HEAD,
        lambda rig: report(rig, shapes, sorted(arguments.sizes), arguments.rounds, columns),
    )


if __name__ == "__main__":
    sys.exit(main())

"""Reading of topics that were written in special ways: small batches, transactions, two threads, a cold start.

Rules of the file:

- The rules of `bench_decode` hold. Threads and cold starts are wall time, for their cost is waiting.
- The best of several rounds counts. `--write` puts the tables and the plot into the documentation.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from remote_fetch.formats.batches import BatchFramer
from remote_fetch.model import AbortedTransaction
from remote_fetch.plan.visibility import AbortedIntervals
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.benchmarks import work
from tests.benchmarks.document import PAGES, machine, write
from tools.svg_plot import Bars, render

PLOT = PAGES / "small-batches.svg"
SMALL = (1, 3, 10, 100)
ABORTER, COMMITTER = 7, 8
UNITS = (64 << 10, 256 << 10, 1 << 20, 4 << 20)


def table(head: str, rows: list[list[str]]) -> list[str]:
    """The lines of a table."""
    names = head.split(", ")
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names), *(f"| {' | '.join(row)} |" for row in rows), ""]
    print("\n".join(lines), flush=True)
    return lines


def small_batches(size_mb: int, rounds: int) -> tuple[list[str], list[tuple[str, dict[str, float]]]]:
    """Nanoseconds a batch, by how many records it has."""
    rows, groups = [], []
    for codec in ("none", "lz4", "zstd"):
        for count in SMALL:
            segment = work.make_segment(100, codec, size_mb, batch_records=count, headers=False)
            contenders = {
                "bare": work.bare(segment),
                "ours": work.ours(segment),
                "aiokafka": work.aiokafka(segment),
            }
            best = work.measure(contenders, segment.records, rounds)
            ours = best["ours"]
            rows.append(
                [
                    codec,
                    str(count),
                    *(f"{best[name] * count:,.0f}" for name in contenders),
                    f"{1000 / ours:.2f}",
                    f"{ours / best['bare']:.1f}",
                    f"{best['aiokafka'] / ours:.1f}",
                ]
            )
            groups.append((f"{codec}, {count} a batch", best))
    head = "codec, records a batch, bare, ours, aiokafka, million records/s, ours / bare, aiokafka / ours"
    return table(head, rows), groups


def profile(size_mb: int) -> list[str]:
    """Where the time goes with one record a batch: the functions that take the most of it themselves."""
    segment = work.make_segment(100, "none", size_mb, batch_records=1, headers=False)
    run = work.ours(segment)
    run()
    profiler = cProfile.Profile()
    profiler.runcall(run)
    stats = pstats.Stats(profiler)
    total = stats.total_tt  # type: ignore[attr-defined]
    entries = sorted(stats.stats.items(), key=lambda item: -item[1][2])  # type: ignore[attr-defined]
    rows = [[f"`{name}`", f"{own / total:.0%}"] for (_, _, name), (_, _, own, _, _) in entries[:6]]
    return table("function, share of the time", rows)


def aborted(size_mb: int, rounds: int) -> list[str]:
    """read_committed over transactional batches, of which some were aborted; nanoseconds a kilobyte stored."""
    rows = []
    for codec in ("none", "zstd"):
        for percent in (0, 1, 20, 100):
            segment = work.make_segment(100, codec, size_mb, producer_of=partial(_producer, percent))
            hidden = AbortedIntervals.of(_aborted_in(segment))
            shown = work.ours(segment, aborted=hidden)()
            if bool(shown) == (percent == 100):
                raise ValueError(f"{shown} of {segment.records} records are shown")
            elapsed = _best_ns(work.ours(segment, aborted=hidden), rounds)
            floor = _best_ns(work.copy(segment), rounds)
            rows.append(
                [codec, f"{percent} %", f"{elapsed / len(segment.data) * 1000:,.0f}",
                 f"{floor / len(segment.data) * 1000:,.0f}", f"{elapsed / floor:.1f}"]
            )  # fmt: skip
    return table("codec, aborted, ours, copy of the uncompressed bytes, ours / copy", rows)


def transactions(number: int, rounds: int) -> list[str]:
    """read_committed over committed transactions of few records; nanoseconds a record."""
    rows = []
    for records in SMALL:
        segment = work.make_transactions(records, max(number // records, 1))
        contenders = {
            "bare": work.bare(segment),
            "ours": work.ours(segment, aborted=AbortedIntervals.of(())),
            "aiokafka": work.aiokafka(segment),
        }
        best = work.measure(contenders, segment.records, rounds)
        ours = best["ours"]
        ratios = [f"{ours / best['bare']:.1f}", f"{best['aiokafka'] / ours:.2f}"]
        rows.append([str(records), *(f"{best[name]:,.0f}" for name in contenders), *ratios])
    return table("records a transaction, bare, ours, aiokafka, ours / bare, aiokafka / ours", rows)


def _producer(percent: int, number: int) -> int:
    """Whose batch it is; those of the aborter are scattered."""
    return ABORTER if number * 37 % 100 < percent else COMMITTER


def _aborted_in(segment: work.Segment) -> Iterator[AbortedTransaction]:
    """One transaction for each stretch of batches of the aborter; its marker is thought where the next batch begins."""
    framer = BatchFramer(0)
    framer.feed(memoryview(segment.data))
    first = last = -1
    while (batch := framer.next_batch()) is not None:
        if batch.header.producer_id == ABORTER:
            first, last = (batch.header.base_offset if first < 0 else first), batch.header.last_offset
        elif first >= 0:
            yield AbortedTransaction(ABORTER, first, last, first)
            first = -1
    if first >= 0:
        yield AbortedTransaction(ABORTER, first, last, first)


def _best_ns(run: Callable[[], int], rounds: int) -> float:
    best = float("inf")
    for _ in range(3 * rounds):
        start = time.thread_time_ns()
        run()
        best = min(best, time.thread_time_ns() - start)
    return best


def two_threads(size_mb: int, rounds: int) -> list[str]:
    """How much two threads on two partitions get done in the time of one, by the size of a unit's columns."""
    rows = []
    for codec, count in (("none", 1 << 30), ("zstd", 1 << 30), ("lz4", 1 << 30), ("none", 3)):
        segment = work.make_segment(100, codec, size_mb, batch_records=count, headers=False)
        gains = []
        for unit in UNITS:
            run = work.ours(segment, unit_bytes=unit)
            one, two = (min(_wall(run, threads) for _ in range(2 * rounds)) for threads in (1, 2))
            gains.append(f"{2 * one / two:.2f}")
        rows.append([codec, "16 KB" if count > 3 else f"{count} records", *gains])
    return table("codec, batches, " + ", ".join(f"{unit >> 10} KiB" for unit in UNITS), rows)


def _wall(run: Callable[[], int], count: int) -> float:
    threads = [threading.Thread(target=run) for _ in range(count)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - start


def cold_start(segments: int, rounds: int) -> list[str]:
    """From the start of a process to what is named, milliseconds."""
    python = [sys.executable, "-c"]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        log = LogBuilder("topic")
        for at in range(segments):
            log.append_batch([Record(0, 0, None, b"%d" % at)])
            log.roll()
        url = str(write_kafka_local(place, log.segments()))
        cat = [sys.executable, "-m", "remote_fetch", "cat", "--url", url, "-t", "topic", "-c", "1", "-q"]
        for name, command in {
            "python, nothing imported": [*python, "pass"],
            "import remote_fetch": [*python, "import remote_fetch"],
            "import pyarrow": [*python, "import pyarrow"],
            "import confluent_kafka": [*python, "import confluent_kafka"],
            "remote-fetch --help": [sys.executable, "-m", "remote_fetch", "--help"],
            f"first record of cat, {segments:,} segments": [*cat, "-o", "beginning"],
            "the last but one": [*cat, "-o", str(segments - 2)],
        }.items():
            best = min(_process(command) for _ in range(2 * rounds + 1))
            rows.append([name, f"{best * 1000:,.0f}"])
    return table("from the start of a process to the end of, ms", rows)


def _process(command: list[str]) -> float:
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2], timeout=120)
    return time.monotonic() - start


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, metavar="MB", help="of the data (default: 1; to write, 16)")
    parser.add_argument("--segments", type=int, help="in the bucket of the cold start (default: 200; to write, 5000)")
    parser.add_argument("--rounds", type=int, help="rounds, the best of which counts (default: 2; to write, 3)")
    parser.add_argument("--write", action="store_true", help="write tables and plot into docs/")
    arguments = parser.parse_args()
    size = arguments.size or (16 if arguments.write else 1)
    segments = arguments.segments or (5000 if arguments.write else 200)
    rounds = arguments.rounds or (3 if arguments.write else 2)
    measured_on = [machine("pyarrow", "aiokafka", "kafka-python"), ""]
    small, groups = small_batches(size, rounds)
    sections = {
        "small_batches": [*measured_on, *small],
        "profile": profile(size),
        "aborted": aborted(size, rounds),
        "transactions": [*measured_on, *transactions(2000 * size, rounds)],
        "threads": two_threads(size, rounds),
        "cold_start": cold_start(segments, rounds),
    }
    if arguments.write:
        for mark, lines in sections.items():
            write(mark, "\n".join(lines).rstrip())
        PLOT.parent.mkdir(exist_ok=True)
        series = ("bare", "ours", "aiokafka")
        title = "Small batches, values of 100 bytes"
        PLOT.write_text(render(Bars(title, "ns a record", series, groups, cut=6000)), encoding="utf-8")


if __name__ == "__main__":
    main()

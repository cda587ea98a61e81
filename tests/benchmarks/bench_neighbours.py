"""Latency of a live producer and consumer while a backfill reads a tiered topic of the same broker.

Rules of the file:

- The broker has one processor, all clients have another. The backfill gives way to the live client there (nice). So the
  latency is the broker's.
- The live topic is on the same broker and not tiered.
- The backfill reads eight partitions again and again, through the broker or from the store. Both are compared with a
  broker that has no backfill.
- `--write` puts the table into docs/performance/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from tests.benchmarks.bench_broker import LARGE_BATCH_BYTES, Shape, fill, measured_on
from tests.benchmarks.commands import ROOT, printed
from tests.benchmarks.neighbours import LIVE, READY, Task
from tests.benchmarks.on_a_broker import add_options, run
from tests.benchmarks.peers import broker_cpu_s
from tests.rig.rig import Rig
from tests.rig.topics import create_topic

BACKFILLS: Mapping[str, str | None] = MappingProxyType(
    {
        "none": None,
        "through the broker, default": "default, consume",
        "through the broker, tuned": "8 MiB, consume",
        "from the store": "RemoteConsumer, consume",
    }
)
"""Who backfills, by the name in the table."""
PARTITIONS, VALUE_BYTES = 8, 1000
BROKERS_PROCESSOR, CLIENTS_PROCESSOR = 0, 1
TIMEOUT_S = 600
HEAD = (
    "| backfill | p50, ms | p99, ms | longest, ms | backfill, MB/s | broker CPU, % of a processor |\n"
    "|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the latencies of the live client, and the backfill that ran beside it."""

    p50_ms: float
    p99_ms: float
    longest_ms: float
    backfill_mb_per_s: float
    broker_cpu: float


def pin(pid: int, processor: int) -> None:
    """Let all threads of a process run on one processor only; those they start inherit it."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {processor})


@contextmanager
def backfilling(task: Task | None, speeds: list[float]) -> Iterator[None]:
    """A backfill that has begun, for as long as the block takes; its MB/s are added to `speeds`."""
    if task is None:
        yield
        speeds.append(0.0)
        return
    command = [sys.executable, "-m", "tests.benchmarks.neighbours", json.dumps(asdict(task))]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RuntimeError(f"{task.who} did not begin")
            yield
            answer, _ = process.communicate("\n", TIMEOUT_S)
            speeds.append(float(answer))
        finally:
            process.kill()


def measure(rig: Rig, who: str | None, topic: str, live_topic: str, seconds: float) -> Round:
    """One round of the live client beside one backfill."""
    where = (seconds, rig.bootstrap, str(rig.remote), CLIENTS_PROCESSOR)
    speeds: list[float] = []
    with backfilling(None if who is None else Task(who, topic, PARTITIONS, *where), speeds):
        before_s = broker_cpu_s(rig.nodes[1].pid)
        live = json.dumps(asdict(Task(LIVE, live_topic, 1, *where)))
        times = printed("tests.benchmarks.neighbours", live, timeout_s=TIMEOUT_S)
        used_s = broker_cpu_s(rig.nodes[1].pid) - before_s
    times_ms: list[float] = json.loads(times)
    p99_ms = times_ms[int(len(times_ms) * 0.99)]
    return Round(statistics.median(times_ms), p99_ms, times_ms[-1], speeds[0], used_s / seconds)


def report(rig: Rig, size_mb: int, seconds: float, rounds: int) -> str:
    """The whole section: machine and table; of several rounds the one in the middle by p99."""
    fill(rig, "backfill", Shape(VALUE_BYTES, "none", LARGE_BATCH_BYTES, PARTITIONS), (size_mb << 20) // VALUE_BYTES)
    create_topic(rig, "live", remote_storage_enable="false", local_retention_ms="-2", segment_bytes=1 << 30)
    pin(rig.nodes[1].pid, BROKERS_PROCESSOR)
    measure(rig, None, "backfill", "live", seconds)  # to warm up
    lines = []
    for name, who in BACKFILLS.items():
        found = [measure(rig, who, "backfill", "live", seconds) for _ in range(rounds)]
        one = sorted(found, key=lambda each: each.p99_ms)[len(found) // 2]
        cells = [
            name,
            f"{one.p50_ms:.1f}",
            f"**{one.p99_ms:.1f}**",
            f"{one.longest_ms:.0f}",
            f"{one.backfill_mb_per_s:,.0f}" if who else "",
            f"{100 * one.broker_cpu:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return "\n".join([measured_on(rig), "", HEAD, *lines])


def main() -> int:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64, metavar="MB", help="MB of values to backfill (default: 64)")
    parser.add_argument("--seconds", type=float, default=6, help="how long each round takes (default: 6)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds, the middle one counts (default: 1)")
    add_options(parser)
    arguments = parser.parse_args()
    if not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) <= CLIENTS_PROCESSOR:
        print("bench_neighbours: not measured: it takes Linux and two processors", file=sys.stderr)
        return 1 if arguments.write else 0
    size_mb, seconds, rounds = arguments.size, arguments.seconds, arguments.rounds
    return run("bench_neighbours", arguments, HEAD, lambda rig: report(rig, size_mb, seconds, rounds))


if __name__ == "__main__":
    sys.exit(main())

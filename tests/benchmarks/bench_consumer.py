"""RemoteConsumer beside the consumer it replaces, on a tiered topic: speed, CPU, and the moment of the hand-over.

Rules of the file:

- Topics, processes and rounds are those of bench_broker.
- `consume` is compared with the other class's `consume`, and `poll` with its `poll`.
- "Best" is the fastest configuration of the other class.
- A consumer with remote fetch switched off is compared with the other class in the same configuration.
- `--write` puts the tables into docs/performance/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.benchmarks.bench_broker import (
    MIN_SIZE_MB,
    PARTITIONS,
    READER_TIMEOUT_S,
    Best,
    Shape,
    add_shape_options,
    fill,
    large_batches,
    measured_on,
    run_reader,
)
from tests.benchmarks.commands import printed
from tests.benchmarks.consumers import HAND_OVER, PARTS, READERS
from tests.benchmarks.on_a_broker import add_options, run
from tests.benchmarks.peers import Job
from tests.rig import topics
from tests.rig.rig import Rig

OURS, OFF, SAME_AS_OFF = "RemoteConsumer", "off, tuned", "tuned"
RIVALS = ("default", "tuned", "8 MiB")
HAND_OVER_ROUNDS = 10
LOCAL_RECORDS = 1_000
RATIO_HEAD = (
    "| value bytes | codec | batches | partitions | by | / default | / best | by medians | client CPU: ours / best's "
    "| between the sizes | its parts alone / best's | best is | off / same configuration "
    "| broker CPU: ours / best's |\n"
    f"|{'---|' * 14}"
)


@dataclass(frozen=True, slots=True)
class Found:
    """The figures of one topic: the best of each reader, and its hand-overs in ms, soon after the start and later."""

    best: Mapping[str, Best]
    hand_overs_ms: Sequence[tuple[float, float]]


def hand_overs(job: Job) -> list[tuple[float, float]]:
    """Milliseconds of hand-overs soon after `assign` and later, in a process of its own."""
    lines = printed("tests.benchmarks.consumers", json.dumps(asdict(job)), timeout_s=READER_TIMEOUT_S).splitlines()
    return [(soon, later) for soon, later in map(json.loads, lines)]


def measure(rig: Rig, shape: Shape, size_mb: int, rounds: int) -> Found:
    """Every consumer on a topic of that shape and about `size_mb` of values."""
    records = (size_mb << 20) // shape.value_bytes
    topic = f"consumer-{shape.value_bytes}-{shape.codec}-{shape.partitions}-{size_mb}"
    fill(rig, topic, shape, records)

    def job(reader: str, job_rounds: int) -> Job:
        return Job(
            reader, topic, shape.partitions, records, records * shape.value_bytes, job_rounds,
            rig.bootstrap, str(rig.remote), rig.nodes[1].pid,
        )  # fmt: skip

    best = {reader: run_reader(job(reader, rounds), "tests.benchmarks.consumers") for reader in (*READERS, PARTS)}
    if shape.partitions > 1:
        return Found(best, ())
    topics.set_config(rig, topic, local_retention_ms=-2)
    topics.produce(rig, topic, LOCAL_RECORDS)
    return Found(best, hand_overs(job(HAND_OVER, HAND_OVER_ROUNDS)))


def ratios(shape: Shape, smallest: Mapping[str, Best], best: Mapping[str, Best]) -> Iterator[str]:
    """The lines of the first table: how many times as fast as whom, and for how much of the CPU.

    `best` is of the largest size, and so are all figures but the CPU for what it has more than the `smallest`.
    """

    def more_cpu_s(reader: str) -> float:
        return best[reader].client_cpu_s - smallest[reader].client_cpu_s

    for how in ("consume", "poll"):
        of = {name: best[f"{name}, {how}"] for name in (OURS, OFF, *RIVALS)}
        ours = of[OURS]
        rival = min(RIVALS, key=lambda name: of[name].wall_s)
        least_cpu_s = max(of[rival].client_cpu_s, 1e-9)
        rivals_cpu_s = more_cpu_s(f"{rival}, {how}")
        cells = [
            how,
            f"{of['default'].wall_s / ours.wall_s:.1f}",
            f"**{of[rival].wall_s / ours.wall_s:.2f}**",
            f"{min(of[name].median_s for name in RIVALS) / ours.median_s:.2f}",
            f"**{ours.client_cpu_s / least_cpu_s:.2f}**",
            f"{more_cpu_s(f'{OURS}, {how}') / rivals_cpu_s:.2f}" if rivals_cpu_s > 0 else "-",
            f"{best[PARTS].client_cpu_s / least_cpu_s:.2f}" if how == "consume" else "",
            rival,
            f"{of[SAME_AS_OFF].wall_s / of[OFF].wall_s:.2f}",
            f"{ours.broker_cpu_s / max(of[rival].broker_cpu_s, 0.01):.2f}",
        ]
        yield f"| {shape} | {' | '.join(cells)} |"


def details(shape: Shape, sizes_mb: Sequence[int], found: Mapping[int, Found]) -> Iterator[str]:
    """The lines of the second table: each consumer's speed at each size, and its CPU at the largest."""
    for reader in (*READERS, PARTS):
        largest = found[sizes_mb[-1]].best[reader]
        records = largest.value_bytes // shape.value_bytes
        cells = [
            *(f"{found[size_mb].best[reader].mb_per_s:,.0f}" for size_mb in sizes_mb),
            f"{records / largest.wall_s / 1e3:,.0f}",
            f"{largest.client_cpu_s / records * 1e9:,.0f}",
            f"{largest.caller_cpu_s / records * 1e9:,.0f}",
            f"{largest.broker_cpu_s / records * 1e9:,.0f}",
        ]
        yield f"| {shape} | {reader} | {' | '.join(cells)} |"


def report(rig: Rig, shapes: Sequence[Shape], sizes_mb: Sequence[int], rounds: int) -> str:
    """The whole section: machine, both tables, and the hand-over."""
    first: list[str] = []
    second: list[str] = []
    times_ms: list[tuple[float, float]] = []
    for shape in shapes:
        found = {size_mb: measure(rig, shape, size_mb, rounds) for size_mb in sizes_mb}
        lines = list(ratios(shape, found[sizes_mb[0]].best, found[sizes_mb[-1]].best))
        first += lines
        second += details(shape, sizes_mb, found)
        times_ms += [one for each in found.values() for one in each.hand_overs_ms]
        print("\n".join(lines), flush=True)
    sizes = " | ".join(f"MB/s, {size_mb} MB" for size_mb in sizes_mb)
    head = (
        f"| value bytes | codec | batches | partitions | consumer | {sizes} | thousand records/s "
        f"| client CPU, ns a record | of it the caller | broker CPU, ns a record |\n|{'---|' * (9 + len(sizes_mb))}"
    )
    tables = [measured_on(rig), "", RATIO_HEAD, *first, "", head, *second]
    if times_ms:
        tables += ["", _hand_over_line(times_ms)]
    return "\n".join(tables)


def _hand_over_line(times_ms: Sequence[tuple[float, float]]) -> str:
    soon, later = (
        f"median {statistics.median(times):.1f} ms, longest {max(times):.1f} ms"
        for times in zip(*times_ms, strict=True)
    )
    return (
        f"From the last record of the store to the first of the broker, {len(times_ms)} times each: {later}; "
        f"in the first half second after `assign` {soon}."
    )


def main() -> int:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 36], metavar="MB", help="MB of values (12 36)")
    parser.add_argument(
        "--rounds", type=int, default=1, help="the best of which counts, after one to warm up; 0: that one (1)"
    )
    add_shape_options(parser)
    parser.add_argument("--partitions", type=int, nargs="+", choices=PARTITIONS, default=list(PARTITIONS))
    add_options(parser)
    arguments = parser.parse_args()
    if min(arguments.sizes) < MIN_SIZE_MB:
        parser.error(f"--sizes: eight partitions with full batches of 1 MB need {MIN_SIZE_MB} MB")
    shapes = list(large_batches(arguments, arguments.partitions))
    sizes_mb = sorted(arguments.sizes)
    return run("bench_consumer", arguments, RATIO_HEAD, lambda rig: report(rig, shapes, sizes_mb, arguments.rounds))


if __name__ == "__main__":
    sys.exit(main())

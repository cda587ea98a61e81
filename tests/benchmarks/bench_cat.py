"""`remote-fetch cat` beside kcat, which reads the same tier through the broker: payloads, and JSON lines.

Rules of the file:

- One real broker tiers the topics to a directory and deletes its own copy.
- Values are JSON text in words, as services write it.
- Every command is a process of its own. It has to print as many lines as there are records. The best of the rounds
  counts, with the CPU of that round; the broker's CPU is in neither.
- `--write` puts the table into docs/performance/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.bench_broker import LARGE_BATCH_BYTES, Shape, fill
from tests.benchmarks.commands import taken
from tests.benchmarks.document import machine
from tests.benchmarks.on_a_broker import add_options, run
from tests.rig.rig import Rig

FORMATS = {"payloads": (), "JSON (`-J`)": ("-J",)}
HEAD = (
    "| value bytes | MB of values | prints | `remote-fetch cat`, s | kcat, s | kcat's time / ours | our CPU, s "
    "| kcat's CPU, s |\n|---|---|---|---|---|---|---|---|"
)


def measured(rig: Rig, value_bytes: int, size_mb: int, rounds: int) -> Iterator[str]:
    """The rows of one topic."""
    records = (size_mb << 20) // value_bytes
    topic = f"cat-{value_bytes}-{size_mb}"
    fill(rig, topic, Shape(value_bytes, "none", LARGE_BATCH_BYTES, 1, "text"), records)
    program = str(Path(sys.executable).with_name("remote-fetch"))
    ours = [program, "cat", "-b", rig.bootstrap, "--url", str(rig.remote), "-t", topic, "-e", "-q"]
    theirs = ["kcat", "-C", "-b", rig.bootstrap, "-t", topic, "-e", "-q"]
    for name, options in FORMATS.items():
        best = [min(taken([*command, *options], records) for _ in range(rounds)) for command in (ours, theirs)]
        yield (
            f"| {value_bytes:,} | {size_mb} | {name} | {best[0].wall_s:.2f} | {best[1].wall_s:.2f} "
            f"| **{best[1].wall_s / best[0].wall_s:.2f}** | {best[0].cpu_s:.2f} | {best[1].cpu_s:.2f} |"
        )


def main() -> int:
    """Measure, and print the rows; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 48], metavar="MB", help="MB of values (16 48)")
    parser.add_argument("--rounds", type=int, default=3, help="the best of which counts (3)")
    add_options(parser)
    arguments = parser.parse_args()

    def report(rig: Rig) -> str:
        rows = [
            row
            for value_bytes in (100, 1000)
            for size_mb in sorted(arguments.sizes)
            for row in measured(rig, value_bytes, size_mb, arguments.rounds)
        ]
        return "\n".join([machine("confluent-kafka", "pyarrow"), "", HEAD, *rows])

    return run("bench_cat", arguments, "cat beside kcat", report, programs=("kcat",))


if __name__ == "__main__":
    sys.exit(main())

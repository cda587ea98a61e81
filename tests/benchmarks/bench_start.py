"""The cost of a start: imports, commands and wheels, beside confluent_kafka and kcat.

    python -m tests.benchmarks.bench_start --environment DIR --wheels DIR

Rules of the file:

- Every start is a process of its own. All rows are run in turn, round by round, and the best and the median count.
- Without `--environment` the environment of this process is measured. Imports of a checkout's environment cost more
  than those of an installed wheel.
- `--wheels` names a folder of wheels, whose sizes are shown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import zipfile
from pathlib import Path

from tests.benchmarks.document import machine, write
from tests.rig.kcat import kcat

HEAD = "| start | best, ms | median, ms | CPU, ms |\n|---|---|---|---|"
SIZES = "| wheel | size, MB | unpacked, MB |\n|---|---|---|"


def started(command: list[str]) -> tuple[float, float]:
    """The wall time and the CPU time of a process, in milliseconds. Raises ValueError if it fails."""
    began = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    pid = os.posix_spawn(command[0], command, _environment(), file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    took = time.perf_counter() - began
    if status:
        raise ValueError(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return took * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def commands(folder: Path) -> dict[str, list[str]]:
    """The starts, by their name. `folder` has the environment's programs."""
    python, program = str(folder / "python"), str(folder / "remote-fetch")
    imports = {
        "`python -c pass`": "pass",
        "`import confluent_kafka`": "import confluent_kafka",
        "`import remote_fetch`": "import remote_fetch",
        "`from remote_fetch import RemoteConsumer`": "from remote_fetch import RemoteConsumer",
        "`from remote_fetch import read_arrow`": "from remote_fetch import read_arrow",
        "`import pyarrow`": "import pyarrow",
    }
    found = {name: [python, "-c", code] for name, code in imports.items()}
    found |= {f"`remote-fetch {word}`": [program, word] for word in ("--help", "--version", "demo")}
    other = kcat()
    return found if other is None else found | {"`kcat -V`": [other, "-V"]}


def table(folder: Path, rounds: int) -> str:
    """The rows of all starts."""
    wanted = commands(folder)
    for command in wanted.values():
        started(command)  # the files come into the page cache
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in wanted}
    for _ in range(rounds):
        for name, command in wanted.items():
            times[name].append(started(command))
    rows = [
        f"| {name} | {min(walls):.0f} | {statistics.median(walls):.0f} | {min(cpus):.0f} |"
        for name, taken in times.items()
        for walls, cpus in [tuple(zip(*taken, strict=True))]
    ]
    return "\n".join([HEAD, *rows])


def sizes(folder: Path) -> str:
    """The rows of the wheels in a folder."""
    rows = []
    for path in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
        rows.append(f"| `{path.name}` | {path.stat().st_size / 1e6:.1f} | {unpacked / 1e6:.1f} |")
    return "\n".join([SIZES, *rows])


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="bench_start", description="Imports, commands and wheels.")
    parser.add_argument("--environment", type=Path, default=Path(sys.prefix), help="where remote-fetch is installed")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance/")
    arguments = parser.parse_args()
    parts = [machine("confluent-kafka", "pyarrow"), table(arguments.environment / "bin", arguments.rounds)]
    if arguments.wheels is not None:
        parts.append(sizes(arguments.wheels))
    section = "\n\n".join(parts)
    print(section)
    if arguments.write:
        write("bench_start", section)


if __name__ == "__main__":
    main()

"""A benchmark that needs a broker: start one, measure, print, and write the section where that is asked for."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shutil import which

from tests.benchmarks.document import write
from tests.rig.artifacts import jars, missing_tool
from tests.rig.rig import VERSIONS, Rig, single

__all__ = ["add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that all these benchmarks take."""
    parser.add_argument("--version", default=VERSIONS[0], help=f"the Kafka version (default: {VERSIONS[0]})")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance/")


def run(
    name: str,
    arguments: argparse.Namespace,
    head: str,
    report: Callable[[Rig], str],
    properties: Callable[[Path], Mapping[str, str]] = lambda folder: {},
    programs: Sequence[str] = (),
) -> int:
    """Measure with a broker that is started for it, or say why that cannot be; the exit status.

    `properties` are more of the broker's; it gets a folder of its own. `programs` are those that are compared.
    """
    reason = missing_tool() or (None if Path("/proc/self/stat").exists() else "the CPU of a broker is read from /proc")
    reason = reason or next((f"{each} is not installed" for each in programs if which(each) is None), None)
    if reason is not None:
        print(f"{name}: not measured: {reason}", file=sys.stderr)
        return 1 if arguments.write else 0
    jars(arguments.version)
    print(head, flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as folder,
        single(
            Path(folder), arguments.version, full_compiler=True, properties=properties(Path(folder) / "more")
        ) as rig,
    ):
        section = report(rig)
    print(f"\n{section}")
    if arguments.write:
        write(name, section)
    return 0

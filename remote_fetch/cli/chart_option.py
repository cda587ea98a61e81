"""The option `--chart`: segments over time, on the terminal or in an SVG file."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any

from remote_fetch.cli.chart import Chart, svg_chart, text_chart
from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault

__all__ = ["ON_TERMINAL", "add_chart_option", "check_chart_option", "draw_chart"]

ON_TERMINAL = "-"
"""The value of `--chart` without a file."""


def add_chart_option(group: Any) -> None:
    """Add `--chart [FILE.svg]`."""
    group.add_argument(
        "--chart", nargs="?", const=ON_TERMINAL, metavar="FILE.svg",
        help="draw the segments over time, in place of their lines; with FILE.svg write a picture beside them",
    )  # fmt: skip


def check_chart_option(arguments: argparse.Namespace) -> None:
    """Raise ConfigError if both a chart and JSON would go to the terminal."""
    if arguments.json and arguments.chart == ON_TERMINAL:
        raise ConfigError("-J and --chart exclude each other; --chart FILE.svg goes with -J", key="--chart")


def draw_chart(where: str, chart: Chart, title: str) -> None:
    """Print the chart, or write it to the file `where`. Raises ConfigError."""
    if where == ON_TERMINAL:
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        for line in text_chart(chart, shutil.get_terminal_size((100, 24)).columns, unicode=encoding == "utf8"):
            print(line)
        return
    if os.path.splitext(where)[1].lower() != ".svg":
        raise ConfigError(f"--chart {where}: the file of a chart is an SVG: name it FILE.svg", key="--chart")
    try:
        with open(where, "w", encoding="utf-8") as file:
            try:
                file.write(svg_chart(chart, title))
                file.flush()
            except OSError:
                if os.path.isfile(where):
                    os.unlink(os.path.realpath(where))  # a part of a picture is none; a link to it stays
                raise
    except OSError as error:
        raise ConfigError(f"--chart {where}: {file_fault(error)}", key="--chart") from None

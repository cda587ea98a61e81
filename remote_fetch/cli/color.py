"""Colour of words that say whether something is wrong: `--color auto`, `always` or `never`.

Rules of the file:

- Colour is never the only sign: the word says the same.
- `auto` colours on a terminal, unless the variable NO_COLOR is set and not empty, or the terminal is a dumb one.
- JSON has no colour.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeAlias

__all__ = ["Color", "Paint", "add_color_option", "paint_from"]


class Color(Enum):
    """The colours, as numbers of ANSI's escape codes."""

    RED = 31
    GREEN = 32
    YELLOW = 33


Paint: TypeAlias = Callable[[str, Color], str]
"""Puts a text in a colour, or leaves it as it is."""


def add_color_option(group: Any) -> None:
    """Add `--color`."""
    group.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto",
        help="colour what is wrong: on a terminal (auto, default; NO_COLOR turns it off), always or never",
    )  # fmt: skip


def paint_from(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Paint:
    """The painter of stdout, by the options and the environment."""
    wanted = arguments.color == "always"
    if arguments.color == "auto":
        refuses = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        wanted = sys.stdout.isatty() and not refuses
    return _painted if wanted else _plain


def _painted(text: str, color: Color) -> str:
    return f"\x1b[{color.value}m{text}\x1b[0m"


def _plain(text: str, color: Color) -> str:
    return text

"""When words are coloured: the option, the terminal, NO_COLOR."""

from __future__ import annotations

import argparse
import io
import sys

import pytest

from remote_fetch.cli.color import Color, add_color_option, paint_from

PAINTED = "\x1b[31mwrong\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("argv", "terminal", "environment", "shown"),
    [
        ((), True, {}, PAINTED),
        ((), True, {"NO_COLOR": ""}, PAINTED),
        ((), True, {"NO_COLOR": "1"}, "wrong"),
        ((), True, {"TERM": "dumb"}, "wrong"),
        ((), False, {}, "wrong"),
        (("--color", "auto"), False, {}, "wrong"),
        (("--color", "always"), False, {"NO_COLOR": "1"}, PAINTED),
        (("--color", "never"), True, {}, "wrong"),
    ],
)
def test_colour(
    argv: tuple[str, ...], terminal: bool, environment: dict[str, str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = argparse.ArgumentParser()
    add_color_option(parser)
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    assert paint_from(parser.parse_args(argv), environment)("wrong", Color.RED) == shown

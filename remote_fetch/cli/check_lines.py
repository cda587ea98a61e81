"""Prints checks of a set-up: a line for each, its hint below, or one JSON object."""

from __future__ import annotations

import json

from remote_fetch.checks.check import Check, State
from remote_fetch.cli.color import Color, Paint

__all__ = ["check_as_json", "print_check"]

_COLORS = {
    State.OK: Color.GREEN, State.ADVICE: Color.YELLOW, State.FAILED: Color.RED, State.SKIPPED: Color.YELLOW,
}  # fmt: skip


def print_check(check: Check, paint: Paint) -> None:
    """Print a check, and its hint in a line of its own."""
    print(f"{paint(f'{check.state:7}', _COLORS[check.state])} {check.name}: {check.text}", flush=True)
    if check.hint:
        print(f"{'':7} hint: {check.hint}", flush=True)


def check_as_json(check: Check) -> str:
    """A check as one JSON object."""
    return json.dumps({"check": check.name, "state": check.state, "text": check.text, "hint": check.hint})

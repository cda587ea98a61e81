"""The parser of the command line: argparse, except that the word after an option is its value also if it has a dash.

Rules of the file: `-t -dash` names the topic `-dash`, as getopt and so kcat take it; an option of the command stays
one, so that a forgotten value is found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """A parser of one command; argparse makes those of its commands of the same class."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, which calls it of a command's own parser too."""
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args(list(self._joined(words)), namespace)

    def _joined(self, words: Sequence[str]) -> Iterator[str]:
        """The words, with a value that has a dash joined to its option: argparse takes it so."""
        rest = iter(words)
        for word in rest:
            if not self._takes_value(word):
                yield word
                continue
            value = next(rest, None)
            if value is None:
                yield word
            elif value.startswith("-") and value not in self._option_string_actions:
                yield f"{word}={value}" if word.startswith("--") else f"{word}{value}"
            else:
                yield from (word, value)

    def _takes_value(self, word: str) -> bool:
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs is None

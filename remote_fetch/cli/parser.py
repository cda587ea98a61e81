"""The parser of the command line: argparse, but the word after an option is its value even if it begins with a dash.

Rules of the file:

- `-t -dash` names the topic `-dash`, as in getopt and kcat. An option of the command is never taken as a value, so
  that a forgotten value is an error.
- No message repeats a value: the words may hold a password that has lost its `-X`.
- An option of Kafka's own tools is refused with the name that it has here.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

__all__ = ["Parser", "about", "whole_number"]


_UNRECOGNIZED = "unrecognized arguments: "
_OTHER_NAMES = {
    "--bootstrap-server": "-b",
    "--bootstrap-servers": "-b",
    "--broker-list": "-b",
    "--brokers": "-b",
    "--command-config": "-F",
    "--command-property": "-X",
    "--consumer-property": "-X",
    "--consumer.config": "-F",
    "--count": "-c",
    "--format": "-f",
    "--from-beginning": "-o",
    "--group": "-G",
    "--isolation-level": "--isolation",
    "--max-messages": "-c",
    "--offset": "-o",
    "--partition": "-p",
    "--partitions": "-p",
    "--start": "-o",
    "--topic": "-t",
}
"""Names of kafka-console-consumer and other tools for options of a command."""


def about(doc: str | None) -> str:
    """The help text of a command: the first paragraph of its module's docstring."""
    return (doc or "").partition("\n\n")[0]


def whole_number(text: str) -> int:
    """The number of an option. Raises ValueError, also for `1_0` and for digits of other scripts, which `int` takes."""
    return int(_plain(text))


def _number(text: str) -> float:
    return float(_plain(text))


def _plain(text: str) -> str:
    if "_" in text or not text.isascii():
        raise ValueError
    return text


class Parser(argparse.ArgumentParser):
    """A parser of one command. argparse uses the same class for the parsers of subcommands."""

    _words: Sequence[str] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As argparse's. Options of type `float` follow the rule of `whole_number` too."""
        super().__init__(*args, **kwargs)
        self.register("type", int, whole_number)
        self.register("type", float, _number)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, but first joins a value that begins with a dash to its option. Keeps the words for `error`.

        argparse also calls this method on the parser of a subcommand. That one refuses strange words itself, because it
        knows its own options.
        """
        words = sys.argv[1:] if args is None else args
        self._words = list(words)
        found, strange = super().parse_known_args(list(self._joined(words)), namespace)
        if strange and self._subparsers is None:
            self.error(_UNRECOGNIZED + " ".join(strange))
        return found, strange

    def error(self, message: str) -> NoReturn:
        """As argparse's, with exit code 2. The message has no values and no stray words."""
        if message.startswith(_UNRECOGNIZED):
            words = message.removeprefix(_UNRECOGNIZED).split()
            options = [self._named(word.partition("=")[0]) for word in words if word.startswith("-")]
            stray = len(words) - len(options)
            also = [f"{stray} word{'s' if stray > 1 else ''} without an option"] if stray else []
            message = _UNRECOGNIZED + ", ".join([*options, *also])
        for word in sorted((word for word in self._words if "=" in word), key=len, reverse=True):
            shown = word.partition("=")[0] + "=..."
            message = message.replace(word, shown).replace(repr(word)[1:-1], shown)
        super().error(message)

    def print_help(self, file: Any = None) -> None:
        """As argparse's. Raises OSError if standard output cannot be written, which argparse passes over.

        A reader that has closed standard output has enough of the help.
        """
        if file is not None:
            super().print_help(file)
        else:
            with contextlib.suppress(BrokenPipeError):
                sys.stdout.write(self.format_help())

    def _named(self, option: str) -> str:
        """The option, and its name here if the command has it under another."""
        here = _OTHER_NAMES.get(option)
        return f"{option} (here {here})" if here in self._option_string_actions else option

    def _joined(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the words of the command line. A value that begins with a dash is joined to its option.

        Example: `-o-10`, `--end=-10`. argparse takes a separate word with a dash for an option.
        """
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

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As argparse's, but `--` may be the value of an option, as in `-D --`. That of Python 3.11 makes it a list."""
        if arg_strings == ["--"] and action.option_strings and action.nargs is None:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)

    def _takes_value(self, word: str) -> bool:
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs is None

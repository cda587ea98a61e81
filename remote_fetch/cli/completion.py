"""`remote-fetch completion`: print the script that lets a shell complete commands and options.

bash: put `eval "$(remote-fetch completion bash)"` into ~/.bashrc.
zsh: write the output to a file `_remote-fetch` in a directory of $fpath.
fish: write the output to ~/.config/fish/completions/remote-fetch.fish.

Rules of the file:

- The script is complete: a shell starts no Python for it.
- It has all commands of this version. After an upgrade it is made again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from remote_fetch.cli.app import whole_parser
from remote_fetch.errors import MissingExtra

__all__ = ["add_options", "run"]

_SHELLS = ("bash", "zsh", "fish")
# What an option or argument is named if it takes a file. A URL may be a path.
_FILES = ("DIR", "FILE", "JOURNAL", "OBJECT", "TARGET", "URL")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (__doc__ or "").partition("\n\nRules")[0]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=" or ".join(_SHELLS))


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    try:
        import shtab  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(
            "the script of a shell's completion needs shtab", extra="cli", hint='pip install "remote-fetch[cli]"'
        ) from error
    parser = whole_parser()
    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
    print(shtab.complete(parser, shell=arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options and arguments of a parser and its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)

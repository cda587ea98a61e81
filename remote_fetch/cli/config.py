"""`remote-fetch config check`: print the meaning of a configuration, and test it with a small read of each kind.

`config keys` lists all keys.

Rules of the file:

- Secrets are masked before they are printed.
- A failed check does not stop the next check.
- The exit code is 0 only if some check was made and all of them passed.
"""

from __future__ import annotations

import argparse
import json
import textwrap

from remote_fetch.checks.check import State
from remote_fetch.checks.storage_checks import config_checks
from remote_fetch.cli.check_lines import check_as_json, print_check
from remote_fetch.cli.color import add_color_option, paint_from
from remote_fetch.cli.masked import masked
from remote_fetch.cli.options import add_common_options, add_json_option, config_from
from remote_fetch.cli.parser import about
from remote_fetch.config import KEYS, PREFIX_KEYS, Config
from remote_fetch.fetch.broker_file import Completed, complete

__all__ = ["add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("keys", help="list all keys", description="List all configuration keys, with their defaults.")
    check = actions.add_parser("check", help="show what was understood, and try it", description=about(__doc__))
    check.add_argument(
        "-t", dest="topic", metavar="TOPIC", help="try a segment of this topic; NAME:ID for one topic id"
    )
    add_json_option(check, "a configuration key, then one a check")
    add_color_option(check)
    add_common_options(check)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if arguments.action == "keys":
        _print_keys()
        return 0
    completed = complete(Config.parse(config_from(arguments)))
    if arguments.json:
        _print_configuration_as_json(completed)
    else:
        _print_configuration(completed)
        print()
    found, paint = [], paint_from(arguments)
    for check in config_checks(completed.config, arguments.topic):
        if arguments.json:
            print(check_as_json(check))
        else:
            print_check(check, paint)
        found.append(check.state)
    return 0 if State.OK in found and State.FAILED not in found else 1


def _print_keys() -> None:
    for key in KEYS.values():
        _print_key(key.name if key.default is None else f"{key.name}={str(key.default).lower()}", key.doc)
    for prefix, doc in PREFIX_KEYS.items():
        _print_key(f"{prefix}NAME", doc)


def _print_key(name: str, doc: str) -> None:
    print(name, textwrap.indent(textwrap.fill(doc, 96), "    "), sep="\n")


def _masked(completed: Completed) -> dict[str, str]:
    """The configuration as it may be shown."""
    ours, servers = completed.config.ours(), completed.config.librdkafka.get("bootstrap.servers")
    shown = {**ours, **({} if servers is None else {"bootstrap.servers": servers})}
    return {name: masked(name, value) for name, value in shown.items()}


def _print_configuration_as_json(completed: Completed) -> None:
    for name, value in _masked(completed).items():
        print(json.dumps({"key": name, "value": value, "from_broker_file": name in completed.from_file}))
    for text in completed.unmapped:
        print(json.dumps({"not_understood": text}))


def _print_configuration(completed: Completed) -> None:
    shown = _masked(completed)
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        origin = "  (the broker's file)" if name in completed.from_file else ""
        print(f"{name:{width}}  {value}{origin}")
    for text in completed.unmapped:
        print(f"not understood: {text}")

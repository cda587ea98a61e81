"""`remote-fetch offsets`: translate committed offsets of a topic into those of its restored topic.

Rules of the file:

- Offsets come and go as CSV, in the form of `kafka-consumer-groups --reset-offsets --export` and `--from-file`.
- CSV is UTF-8, whatever the encoding of the terminal is: an escaped name would be that of another group.
- Rows of other topics are left out.
- A journal that was given up is read too, with a warning: it has only offsets that are right.
- With `-J` there is an object for each row, with the fields' names.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from remote_fetch.amounts import counted
from remote_fetch.cli.options import add_json_option
from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.restore.journal import JournalHead, read_maps
from remote_fetch.restore.offset_map import OffsetMap

__all__ = ["add_options", "run"]

_MAX_BYTES = 256 << 20
_STDIN = "-"
_DIGITS = re.compile(r"[0-9]{1,19}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("journal", metavar="JOURNAL", help="the journal of the restore")
    parser.add_argument(
        "offsets", metavar="FILE", nargs="?", default=_STDIN,
        help="lines of TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET (default: stdin)",
    )  # fmt: skip
    add_json_option(parser, "a row")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    head, maps, given_up = read_maps(Path(arguments.journal))
    if given_up is not None:
        known = maps[given_up]
        print(
            f"% this restore was given up: partition {given_up} of {head.target} has records that are not of it, "
            f"at offset {known.target_next} or later. Its offsets of {head.topic} from {max(known.source_next, 0)} on "
            f"become {known.target_next}",
            file=sys.stderr,
        )
    left_out = 0
    for row in _rows(arguments.offsets):
        translated = _translated(row, head, maps)
        if translated is None:
            left_out += 1
        elif arguments.json:
            print(json.dumps(_as_json(translated)))
        else:
            sys.stdout.buffer.write(_line(translated))
    if left_out:
        print(f"% {counted(left_out, 'row')} left out, of other topics than {head.topic}", file=sys.stderr)
    return 0


def _as_json(row: Sequence[str]) -> dict[str, str | int | None]:
    *group, topic, partition, offset = row
    return {
        "group": group[0] if group else None, "topic": topic, "partition": int(partition), "offset": int(offset),
    }  # fmt: skip


def _line(row: Sequence[str]) -> bytes:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue().encode()


def _rows(name: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of the file with their numbers. Raises ConfigError if it cannot be read."""
    shown = "standard input" if name == _STDIN else name
    number = 0
    try:
        for number, row in enumerate(csv.reader(io.StringIO(_text(name, shown), newline="")), 1):
            if row:
                yield number, row
    except csv.Error as error:
        raise ConfigError(f"{shown}: row {number + 1}: {error}") from None


def _text(name: str, shown: str) -> str:
    if name == _STDIN and sys.stdin is None:
        raise ConfigError("standard input is closed", hint="Name a file with the offsets")
    try:
        if name == _STDIN:
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError(f"{shown}: more than {_MAX_BYTES} bytes", hint="Translate the rows in several runs")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown}: {file_fault(error)}") from None


def _translated(numbered: tuple[int, Sequence[str]], head: JournalHead, maps: dict[int, OffsetMap]) -> list[str] | None:
    """The row of the new topic, None for another topic's."""
    number, row = numbered
    *group, topic, partition, offset = ("", "", "", *row)[-max(len(row), 3) :]
    if len(row) not in (3, 4) or not all(_DIGITS.fullmatch(text.strip()) for text in (partition, offset)):
        raise ConfigError(f"row {number}: TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET expected")
    if topic.strip() != head.topic:
        return None
    known = maps.get(int(partition))
    if known is None:
        raise ConfigError(f"row {number}: the journal has no partition {int(partition)} of {head.topic}")
    return [*group, head.target, str(int(partition)), str(known.translate(int(offset)))]

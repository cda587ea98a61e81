"""`remote-fetch bounds`: where the log of each partition lies, in the tier and on the brokers' disks.

Rules of the file:

- One line for each partition. A dash, or null in JSON, stands for an unknown fact.
- Nothing is read of a segment but the small files beside it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from remote_fetch.amounts import human_bytes
from remote_fetch.cli.ls import print_table
from remote_fetch.cli.options import Once, add_common_options, add_json_option, config_from, partitions_from
from remote_fetch.cli.report import Warnings
from remote_fetch.errors import UnknownTopic
from remote_fetch.prepare.job import find_partitions
from remote_fetch.prepare.log_layout import LogLayout, log_layouts
from remote_fetch.session.session import Session

__all__ = ["add_options", "run"]

_OFFSETS = {
    "LOG START": "log_start",
    "TIER START": "tier_start",
    "TIER END": "tier_end",
    "REMOTE STABLE": "remote_stable_offset",
    "LOCAL START": "local_start",
    "LAST STABLE": "last_stable_offset",
    "HIGH WATERMARK": "high_watermark",
    "COPY LAG": "copy_lag",
    "SEGMENTS": "segments",
}
_BYTES = {"REMOTE": "remote_bytes", "STORED": "stored_bytes", "LOCAL": "local_bytes"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "-t", dest="topic", metavar="TOPIC", action=Once, required=True, help="the topic; NAME:ID for one topic id"
    )
    parser.add_argument("-p", dest="partitions", metavar="PARTITION", action="append", help="only this partition")
    add_json_option(parser, "a partition")
    add_common_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    warnings, wanted = Warnings(), partitions_from(arguments)
    with Session.open(config_from(arguments), warnings) as session:
        chosen = sorted(find_partitions(session, arguments.topic, wanted))
        if not chosen:
            raise UnknownTopic("no partitions", topic=arguments.topic)
        layouts = log_layouts(session, chosen)
    if arguments.json:
        for layout in layouts:
            print(json.dumps(_as_json(layout)))
    else:
        heads = ("TOPIC", "PARTITION", *_OFFSETS, *_BYTES)
        print_table([heads, *(_row(layout) for layout in layouts)], frozenset(heads[1:]))
    warnings.print()
    return 0


def _row(layout: LogLayout) -> tuple[str, ...]:
    offsets = [getattr(layout, name) for name in _OFFSETS.values()]
    sizes = [getattr(layout, name) for name in _BYTES.values()]
    return (
        layout.partition.topic,
        str(layout.partition.partition),
        *("-" if number is None else str(number) for number in offsets),
        *("-" if size is None else human_bytes(size) for size in sizes),
    )


def _as_json(layout: LogLayout) -> dict[str, Any]:
    names = (*_OFFSETS.values(), *_BYTES.values())
    return {**layout.partition.fields, **{name: getattr(layout, name) for name in names}}

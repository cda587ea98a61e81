"""`remote-fetch export`: write a topic's records to Parquet files, or into an Iceberg or Delta table.

Rules of the file:

- stdout has the report, and nothing else.
- Progress and warnings go to stderr.
"""

from __future__ import annotations

import argparse
import errno
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from remote_fetch.cli.bounds import bounds_of, isolation_of
from remote_fetch.cli.options import (
    add_common_options,
    add_json_option,
    add_range_options,
    config_from,
    pairs_from,
    partitions_from,
)
from remote_fetch.cli.progress import Progress
from remote_fetch.cli.report import resumable
from remote_fetch.cli.typed import add_typed_options, refuse_packs, typed_config
from remote_fetch.config.settings import typed_option
from remote_fetch.errors import ConfigError
from remote_fetch.export import export_topic
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.observe import Counters, Event, Notice
from remote_fetch.tables.export_plan import TIER

__all__ = ["add_options", "run"]

_SIZE = re.compile(r"0*([1-9][0-9]{0,17})([KMGkmg]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_OF_A_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Full, full for this user, a file that is too large, broken. A write that fails for one of these names no file."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_range_options(parser, topic_required=True, ends=f"{TIER} (default), latest")
    add_common_options(parser)
    target = parser.add_argument_group("target")
    target.add_argument("--to", required=True, metavar="TARGET", help="a directory or URL; for iceberg NAMESPACE.TABLE")
    target.add_argument("--format", default="parquet", metavar="FORMAT", help="parquet (default), iceberg or delta")
    target.add_argument(
        "--partition-by", metavar="COLUMN", action="append", default=[],
        help="a directory for each value of this column, or of day or hour of the timestamp; may be repeated",
    )  # fmt: skip
    target.add_argument("--columns", metavar="A,B", help="which columns, in which order (default: all)")
    add_typed_options(target, "avro, key=avro or value=avro: typed columns of Avro, by the registry of -r")
    target.add_argument("--compression", default="zstd", metavar="CODEC", help="of the Parquet files (zstd)")
    target.add_argument(
        "--file-size",
        default="128M",
        metavar="BYTES",
        help="begin another file at this size (128M); K, M and G are binary",
    )
    target.add_argument(
        "--to-option", metavar="KEY=VALUE", action="append", default=[],
        help="an argument of the target's filesystem, or a property of the Iceberg catalog; may be repeated",
    )  # fmt: skip
    target.add_argument(
        "--allow-lost", action="store_true", help="pass over offsets that were deleted before they were exported"
    )
    output = parser.add_argument_group("output")
    add_json_option(output, "with the report")
    output.add_argument("-q", dest="quiet", action="store_true", help="no progress and no warnings on stderr")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    warnings, counters = list[str](), Counters()
    refuse_packs(arguments.unpack)
    start, end = bounds_of(arguments, TIER)
    with Progress("offsets exported", enabled=not arguments.quiet) as progress:

        def hear(event: Event) -> None:
            if isinstance(event, Notice) and event.is_warning and event.text not in warnings:
                warnings.append(event.text)
            counters(event)
            progress(event)

        config = typed_config(arguments, config_from(arguments))
        with resumable(is_quiet=arguments.quiet), _named(arguments.to):
            report = export_topic(
                arguments.topic,
                to=arguments.to,
                format=arguments.format,
                start=start,
                end=end,
                partitions=partitions_from(arguments),
                isolation=isolation_of(arguments, config).value,
                columns=None if arguments.columns is None else _names(arguments.columns),
                partition_by=[name for text in arguments.partition_by for name in _names(text)],
                compression=arguments.compression,
                file_bytes=_size(arguments.file_size),
                config=config,
                to_options=_options(arguments),
                log_start=arguments.log_start,
                allow_lost=arguments.allow_lost,
                observer=hear,
            )
    for text in () if arguments.quiet else (*warnings, *counters.causes()):
        print(f"% note: {text}", file=sys.stderr)
    print(json.dumps(report.as_dict()) if arguments.json else report)
    return 0


@contextmanager
def _named(to: str) -> Iterator[None]:
    """Name the target in the error of a disk that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno not in _OF_A_DISK:
            raise
        hint = "The same command again goes on where this one ended"
        raise ConfigError(f"--to {to}: {file_fault(error)}", key="--to", hint=hint) from None


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    given = pairs_from(arguments.to_option, "--to-option")
    return {name: typed_option(name, text) if arguments.format == "parquet" else text for name, text in given.items()}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigError(f"--file-size {text}: give a number of bytes, such as 134217728 or 128M", key="--file-size")
    return int(found[1]) * _UNITS[found[2].upper()]

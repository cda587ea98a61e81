"""`remote-fetch grep`: print the records that have a key, a header or a value.

Rules of the file:

- stdout has records as bytes, as `cat` prints them, and nothing else.
- The exit code is 0 if a record matches, 3 if none does, and 1 if the search failed.
- A partition is left out only if the user names the producer's partitioner.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from remote_fetch.checks.search import PARTITIONERS, Conditions, partition_of
from remote_fetch.checks.where import Where
from remote_fetch.cli import NEGATIVE
from remote_fetch.cli.bounds import plans_from
from remote_fetch.cli.options import Once, add_common_options, add_range_options, config_from, topics_from
from remote_fetch.cli.output import add_output_options, has_report, print_records, print_report, printer_from
from remote_fetch.cli.printer import ROW_COLUMNS
from remote_fetch.cli.progress import Progress
from remote_fetch.cli.typed import TypedRows, typed_config, typed_rows
from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError
from remote_fetch.prepare.subscribed import topic_name
from remote_fetch.scan.scan import Scan
from remote_fetch.session.price_table import open_prices
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["add_options", "run"]

_WHERE_COLUMNS = (*ROW_COLUMNS, "timestamp", "leaderEpoch")
"""The columns of a condition. Those that are not printed are read with a condition only."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    wanted = parser.add_argument_group("conditions, all of which a record has to meet")
    wanted.add_argument("-k", "--key", action=Once, metavar="KEY", help="the key is this text")
    wanted.add_argument(
        "--key-regex", action=Once, metavar="REGEX", help="the key has a match of this regular expression (RE2)"
    )
    wanted.add_argument("--value", action=Once, metavar="TEXT", help="the value has this text")
    wanted.add_argument(
        "--value-regex", action=Once, metavar="REGEX", help="the value has a match of this regular expression (RE2)"
    )
    wanted.add_argument(
        "--header", action=Once, metavar="NAME[=VALUE]", help="there is a header of this name, or with this value"
    )
    wanted.add_argument(
        "--where", action=Once, metavar="CONDITION",
        help="a condition on columns, such as 'offset >= 100 and value.country in [\"DE\", \"FR\"]'",
    )  # fmt: skip
    wanted.add_argument(
        "--partitioner", choices=tuple(PARTITIONERS),
        help="with -k: read only the partition to which this partitioner sends the key. murmur2 is Java's, "
        "consistent librdkafka's. Records of a time when the topic had another number of partitions are missed",
    )  # fmt: skip
    wanted.add_argument(
        "--partition-count", type=int, metavar="N", help="with --partitioner and without -b: the topic's partitions"
    )
    add_range_options(parser, topic_required=True, several=True)
    add_common_options(parser)
    add_output_options(parser)


def _conditions(arguments: argparse.Namespace) -> Conditions:
    name, equals, value = (arguments.header or "").partition("=")
    conditions = Conditions(
        key=_bytes(arguments.key),
        key_regex=arguments.key_regex,
        value=_bytes(arguments.value),
        value_regex=arguments.value_regex,
        header=None if arguments.header is None else name,
        header_value=_bytes(value) if equals else None,
    )
    conditions.check(needs_one=arguments.where is None)
    if arguments.partitioner is not None:
        if arguments.key is None:
            raise ConfigError("--partitioner finds the partition of a key: give it with -k", key="--partitioner")
        if len(topics_from(arguments)) > 1:
            raise ConfigError("--partitioner finds the partition of one topic: give one -t", key="--partitioner")
        if arguments.partitions:
            raise ConfigError("--partitioner and -p exclude each other", key="--partitioner")
    return conditions


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    printer, conditions = printer_from(arguments), _conditions(arguments)
    where = None if arguments.where is None else Where(arguments.where)
    began = time.monotonic()
    found, columns = 0, ROW_COLUMNS if where is None else _WHERE_COLUMNS
    config = typed_config(arguments, config_from(arguments))
    typed = typed_rows(config, topics_from(arguments), columns)
    if where is not None:
        where.check(schema_for(columns) if typed is None else typed.columns.schema)
    with (
        Progress(enabled=not (arguments.quiet or sys.stdout.isatty()), waits=not arguments.quiet) as progress,
        Session.open(config, progress) as session,
    ):
        prices = open_prices(session.config.settings)
        try:
            batches = _matching(arguments, conditions, session, columns)
            if where is not None:
                batches = _filtered(batches, where, typed)
            for printed in print_records(arguments, batches, printer, typed):
                found += printed
        finally:
            progress.stop()
            if has_report(session) and not arguments.quiet:
                so_far = "" if sys.exc_info()[0] is None else " so far"
                print(f"% {found} record{' matches' if found == 1 else 's match'}{so_far}", file=sys.stderr)
                print_report(session, time.monotonic() - began, None, prices)
    return 0 if found else NEGATIVE


def _matching(
    arguments: argparse.Namespace, conditions: Conditions, session: Session, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    if arguments.partitioner is not None:
        number = partition_of(conditions.key or b"", _partition_count(arguments, session), arguments.partitioner)
        arguments.partitions = None if number is None else [str(number)]
        if not arguments.quiet:
            text = "every partition may have an empty key" if number is None else f"partition {number}"
            print(f"% {text} by {arguments.partitioner}", file=sys.stderr)
    plans = plans_from(arguments, session)
    if arguments.count == 0:
        return
    for batch in Scan(session, plans, columns).batches():
        matching = conditions.matching(batch)
        if matching.num_rows:
            yield matching


def _filtered(batches: Iterator[pa.RecordBatch], where: Where, typed: TypedRows | None) -> Iterator[pa.RecordBatch]:
    """The records for which the condition holds. It sees typed keys and values as they are typed."""
    for batch in batches:
        rows = where.matching(batch if typed is None else typed.columns.apply(batch))
        if rows:
            yield batch.take(rows)


def _partition_count(arguments: argparse.Namespace, session: Session) -> int:
    count: int | None = arguments.partition_count
    if count is None and session.brokers is not None:
        count = len(session.brokers.cluster.describe(topic_name(arguments.topics[0])).partitions)
    if count is not None and count <= 0:
        raise ConfigError(f"--partition-count {count}: give a number above 0", key="--partition-count")
    if count is None:
        raise ConfigError(
            "--partitioner needs the number of partitions, which a bucket does not tell",
            key="--partition-count",
            hint="Give --partition-count N, or -b BROKERS",
        )
    return count

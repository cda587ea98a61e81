"""`remote-fetch cat`: print the records of a topic's tiered segments.

Rules of the file:

- stdout has records as bytes, and nothing else.
- Messages go to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from remote_fetch.cli.bounds import plans_from
from remote_fetch.cli.options import about, add_common_options, add_range_options, config_from
from remote_fetch.cli.printer import ROW_COLUMNS, Row, delimiter_bytes, format_printer, json_printer, rows_of
from remote_fetch.cli.report import Progress, report_lines
from remote_fetch.cli.typed import add_typed_options, packs_of, typed_config, typed_rows
from remote_fetch.cli.unpack import unpackers
from remote_fetch.errors import ConfigError
from remote_fetch.observe import Counters
from remote_fetch.plan.cost import estimate
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["add_parser"]


def add_parser(commands: Any, summary: str) -> None:
    """Add this command to `commands`, with `summary` as its short help."""
    parser = commands.add_parser("cat", help=summary, description=about(__doc__))
    parser.set_defaults(run=_run)
    add_range_options(parser, topic_required=True)
    add_common_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument("-c", dest="count", type=int, metavar="COUNT", help="stop after this many records")
    output.add_argument(
        "-e",
        dest="exit",
        action="store_true",
        help="exit at the end; without it new records are followed, where there is a broker",
    )
    output.add_argument("-f", dest="format", metavar="FORMAT", help=r"kcat's format string, such as '%%o %%k %%s\n'")
    output.add_argument("-J", dest="json", action="store_true", help="print one JSON object a record, as kcat does")
    output.add_argument("-K", dest="key_delimiter", metavar="DELIM", help="print the key and this before each payload")
    output.add_argument(
        "-D", dest="delimiter", metavar="DELIM", default=r"\n", help=r"print this after each record (\n)"
    )
    output.add_argument("-Z", dest="null", action="store_true", help="print NULL for null and empty keys and payloads")
    add_typed_options(
        output,
        "print packed numbers: key=FORMAT, value=FORMAT, or FORMAT for both, of the tokens < > b B h H i I q Q c s $ "
        "and space; or avro: JSON of Avro by the registry of -r",
    )
    output.add_argument("-u", dest="unbuffered", action="store_true", help="hand on each record at once")
    output.add_argument(
        "--binary", choices=("text", "base64"), default="text",
        help="with -J: keys, payloads and header values as text (default) or base64",
    )  # fmt: skip
    output.add_argument("-q", dest="quiet", action="store_true", help="no progress and no report on stderr")


def _printer(arguments: argparse.Namespace) -> Callable[[Row], bytes]:
    packs = packs_of(arguments.unpack)[1]
    if arguments.json:
        if arguments.format is not None:
            raise ConfigError("-f and -J exclude each other", key="-f")
        if packs:
            raise ConfigError("-s and -J exclude each other: JSON has keys and payloads as they are", key="-s")
        return json_printer(arguments.binary, delimiter_bytes(arguments.delimiter))
    template = arguments.format
    if template is None:
        key = "" if arguments.key_delimiter is None else f"%k{_literal(arguments.key_delimiter)}"
        template = f"{key}%s{_literal(arguments.delimiter)}"
    return format_printer(template, shows_null=arguments.null, unpack=unpackers(packs))


def _literal(delimiter: str) -> str:
    return delimiter.replace("%", "%%")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.count is not None and arguments.count < 0:
        raise ConfigError(f"-c {arguments.count}: give a number of records", key="-c")
    print_row = _printer(arguments)
    began = time.monotonic()
    quiet_bar = arguments.quiet or sys.stdout.isatty()
    config = typed_config(arguments, config_from(arguments))
    with Progress(enabled=not quiet_bar) as progress, Session.open(config, progress) as session:
        try:
            typed = typed_rows(config, arguments.topic)
            _print_records(arguments, session, progress, print_row, rows_of if typed is None else typed.of)
        finally:
            sys.stdout.flush()
            progress.stop()
            # Also before an error in the middle of the read, because the report helps to understand it.
            has_read = session.counters.report().records > 0 or sys.exc_info()[0] is None
            if has_read and not arguments.quiet:
                _print_report(session.counters, time.monotonic() - began, arguments.count)
    return 0


def _print_records(
    arguments: argparse.Namespace,
    session: Session,
    progress: Progress,
    print_row: Callable[[Row], bytes],
    rows: Callable[[pa.RecordBatch], Iterator[Row]],
) -> None:
    plans = plans_from(arguments, session)
    progress.start(estimate([[s for p in plans for s in p.steps]], session.reader.range_bytes).size_bytes)
    left = arguments.count if arguments.count is not None else sys.maxsize
    output = sys.stdout.buffer
    if left == 0:
        return
    for batch in chain(Scan(session, plans, ROW_COLUMNS).batches(), _following(arguments, session, plans)):
        for row in rows(batch.slice(0, min(left, batch.num_rows))):
            output.write(print_row(row))
            if arguments.unbuffered:
                output.flush()
        output.flush()
        left -= batch.num_rows
        if left <= 0:
            return


def _following(
    arguments: argparse.Namespace, session: Session, plans: Sequence[PartitionPlan]
) -> Iterator[pa.RecordBatch]:
    """Yield new records for ever, as kcat does. Yield nothing with `-e`, with an end, or without a broker.

    `--end latest` does not count as an end.
    """
    has_end = arguments.end not in (None, "latest") or any(text.startswith("e@") for text in arguments.offsets)
    if arguments.exit or session.fallback.reader is None or has_end or not plans:
        return
    starts = {plan.opened.partition: plan.opened.end_offset for plan in plans}
    yield from session.fallback.reader.follow(starts, plans[0].opened.isolation, ROW_COLUMNS)


def _print_report(counters: Counters, elapsed_s: float, count: int | None) -> None:
    report = counters.report()
    if count is not None:
        report = replace(
            report, records=min(report.records, count)
        )  # the last batch may hold more records than were printed
    for line in report_lines(report, elapsed_s):
        print(f"% {line}", file=sys.stderr)

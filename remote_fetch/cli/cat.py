"""`remote-fetch cat`: print the records of a topic's tiered segments.

Rules of the file:

- stdout has records as bytes, and nothing else.
- Messages go to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from remote_fetch.cli.bounds import plans_from
from remote_fetch.cli.kcat_options import add_kcat_options
from remote_fetch.cli.options import add_common_options, add_range_options, config_from, topics_from
from remote_fetch.cli.output import add_output_options, has_report, print_records, print_report, printer_from
from remote_fetch.cli.printer import ROW_COLUMNS, Printer
from remote_fetch.cli.progress import Progress
from remote_fetch.cli.typed import TypedRows, typed_config, typed_rows
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.price_table import open_prices
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.set_defaults(parser=parser)
    add_range_options(parser, topic_required=False, several=True)
    add_common_options(parser)
    output = add_output_options(parser)
    output.add_argument(
        "-e",
        dest="exit",
        action="store_true",
        help="exit at the end; without it new records are followed, where there is a broker",
    )
    add_kcat_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if arguments.names and arguments.group is None:
        arguments.parser.error("topics as words belong to -G; without a group each topic needs its -t")
    if arguments.lists:
        from remote_fetch.cli.metadata import print_metadata  # noqa: PLC0415 - only the chosen mode is loaded

        return print_metadata(arguments)
    printer = printer_from(arguments)
    if arguments.group is not None:
        from remote_fetch.cli.group import print_group  # noqa: PLC0415 - as above

        return print_group(arguments, printer)
    if not arguments.topics:
        arguments.parser.error("the following arguments are required: -t")
    return _cat(arguments, printer)


def _cat(arguments: argparse.Namespace, printer: Printer) -> int:
    began = time.monotonic()
    shows_progress = not (arguments.quiet or sys.stdout.isatty())
    config = typed_config(arguments, config_from(arguments))
    with (
        Progress(enabled=shows_progress, waits=not arguments.quiet, most=arguments.count) as progress,
        Session.open(config, progress) as session,
    ):
        prices = open_prices(session.config.settings)
        try:
            typed = typed_rows(config, topics_from(arguments))
            _print_records(arguments, session, progress, printer, typed)
        finally:
            sys.stdout.flush()
            progress.stop()
            if has_report(session) and not arguments.quiet:
                print_report(session, time.monotonic() - began, arguments.count, prices)
    return 0


def _print_records(
    arguments: argparse.Namespace, session: Session, progress: Progress, printer: Printer, typed: TypedRows | None
) -> None:
    plans = plans_from(arguments, session)
    if arguments.count == 0:
        return
    batches = chain(
        Scan(session, plans, ROW_COLUMNS, most=arguments.count).batches(),
        _following(arguments, session, plans, progress),
    )
    for _ in print_records(arguments, batches, printer, typed):
        pass


def _following(
    arguments: argparse.Namespace, session: Session, plans: Sequence[PartitionPlan], progress: Progress
) -> Iterator[pa.RecordBatch]:
    """Yield new records for ever, as kcat does. Yield nothing with `-e`, with an end, or without a broker.

    `--end latest` does not count as an end.
    """
    has_end = arguments.end not in (None, "latest") or any(text.startswith("e@") for text in arguments.offsets)
    if arguments.exit or session.fallback.reader is None or has_end or not plans:
        return
    progress.stop()  # this read has no end
    starts = {plan.opened.partition: plan.opened.end_offset for plan in plans}
    lineages = {plan.opened.partition: plan.opened.lineage for plan in plans if plan.takes_store}
    yield from session.fallback.reader.follow(starts, plans[0].opened.isolation, ROW_COLUMNS, lineages)

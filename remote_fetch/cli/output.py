"""The options that say how records are printed, for all commands that print records.

Rules of the file: letters are kcat's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from remote_fetch.cli.options import add_json_option
from remote_fetch.cli.printer import Parsed, Printer, UnprintableRow, delimiter_bytes, format_printer, json_printer
from remote_fetch.cli.report import report_lines
from remote_fetch.cli.typed import TypedRows, add_typed_options, packs_of
from remote_fetch.cli.unpack import unpackers
from remote_fetch.errors import ConfigError, RemoteFetchError, UndecodableValue
from remote_fetch.plan.prices import Prices
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

    from remote_fetch.decode.arrays import Array

__all__ = ["add_output_options", "has_report", "print_records", "print_report", "printer_from"]


def add_output_options(parser: argparse.ArgumentParser) -> Any:
    """Add the options, and return their group."""
    output = parser.add_argument_group("output")
    output.add_argument("-c", dest="count", type=int, metavar="COUNT", help="stop after this many records")
    output.add_argument("-f", dest="format", metavar="FORMAT", help=r"kcat's format string, such as '%%o %%k %%s\n'")
    add_json_option(output, "a record, as kcat does")
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
    return output


def printer_from(arguments: argparse.Namespace) -> Printer:
    """The printer of records, as the options say. Raises ConfigError for options that exclude each other."""
    if arguments.count is not None and arguments.count < 0:
        raise ConfigError(f"-c {arguments.count}: give a number of records", key="-c")
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


def print_records(
    arguments: argparse.Namespace, batches: Iterable[pa.RecordBatch], printer: Printer, typed: TypedRows | None
) -> Iterator[int]:
    """Print the records of the batches, at most `-c` of them. Yields how many of each batch were printed.

    `typed` converts keys and payloads before that. If a record cannot be printed, prints those before it, then raises.
    """
    left = sys.maxsize if arguments.count is None else arguments.count
    for batch in batches:
        wanted = batch.slice(0, min(left, batch.num_rows))
        shown, parsed, fault = (wanted, None, None) if typed is None else _typed(wanted, typed)
        try:
            lines = printer(shown, parsed)
        except UnprintableRow as error:
            lines, fault = printer(shown.slice(0, error.at), None), error.error
        try:
            _write(lines, unbuffered=arguments.unbuffered)
        except OSError as error:
            error.filename = error.filename or "standard output"
            raise
        yield len(lines)
        if fault is not None:
            raise fault
        left -= batch.num_rows
        if left <= 0:
            return


def _typed(batch: pa.RecordBatch, typed: TypedRows) -> tuple[pa.RecordBatch, Parsed, RemoteFetchError | None]:
    """The rows before the first value that cannot be decoded, as `TypedRows.of` gives them, and the error of that."""
    fault = None
    while True:
        try:
            return (*typed.of(batch), fault)
        except UndecodableValue as error:
            batch, fault = batch.slice(0, _row_of(batch, error)), error


def _row_of(batch: pa.RecordBatch, error: UndecodableValue) -> int:
    """The row that an error is about. A key may be the first one that fails, and a value before it the next."""
    places = zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    for row, place in enumerate(places):
        if place == (error.topic, error.partition, error.offset):
            return row
    raise error


def _write(lines: Array, *, unbuffered: bool) -> None:
    """Write the values of a binary array, which lie one after another in its buffer."""
    output = sys.stdout.buffer
    _, offsets, data = lines.buffers()
    if len(lines) and offsets is not None and data is not None:
        bounds = memoryview(offsets).cast("i")[lines.offset : lines.offset + len(lines) + 1]
        text = memoryview(data).cast("B")
        if unbuffered:
            for start, stop in pairwise(bounds):
                output.write(text[start:stop])
                output.flush()
        else:
            output.write(text[bounds[0] : bounds[-1]])
    output.flush()


def has_report(session: Session) -> bool:
    """Whether a command prints the report of its read. To be called in the `finally` of the read.

    After an error that is so if records were read, because the report helps to understand the error.
    """
    ended_by = sys.exc_info()[0]
    is_ended = ended_by is None or issubclass(ended_by, KeyboardInterrupt)
    return is_ended or session.counters.report().records > 0


def print_report(session: Session, elapsed_s: float, count: int | None, prices: Prices | None) -> None:
    """Print the report of a read on stderr. `count`: no more records were printed than this.

    `prices` are opened before the read, so that a wrong file is an error before the first record.
    """
    report = session.counters.report()
    if count is not None:
        # The last batch may hold more records than were printed.
        report = replace(report, records=min(report.records, count))
    notes = (f"note: {cause}" for cause in session.counters.causes())
    for line in (*report_lines(report, elapsed_s, prices), *notes):
        print(f"% {line}", file=sys.stderr)


def _literal(delimiter: str) -> str:
    return delimiter.replace("%", "%%")

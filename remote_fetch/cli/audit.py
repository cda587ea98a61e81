"""`remote-fetch audit`: compare the brokers' metadata topic with the storage, and say what is missing or left over.

Rules of the file:

- Nothing is deleted. `--delete-list` writes the names of objects that no broker and no reader needs.
- stdout has a line for each finding and for each topic. Messages go to stderr.
- The exit code is 0 if nothing is wrong, 3 if something is, and 1 if the audit could not be made. Notes are not wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from remote_fetch.amounts import counted, human_bytes, one_line
from remote_fetch.checks.audit import Audit
from remote_fetch.checks.audit_of_session import audit_sources
from remote_fetch.checks.audit_rows import TopicTotals
from remote_fetch.checks.audit_sources import AuditOptions
from remote_fetch.checks.deep_journal import DeepJournal, place_of
from remote_fetch.checks.findings import SEVERITIES, Finding, FindingKind, Severity
from remote_fetch.cli import NEGATIVE
from remote_fetch.cli.color import Color, Paint, add_color_option, paint_from
from remote_fetch.cli.ls import print_table
from remote_fetch.cli.options import CHECK_THE_URL, Once, add_common_options, add_json_option, config_from
from remote_fetch.cli.progress import Progress
from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.session.session import Session

__all__ = ["add_options", "run"]

_COLORS = {Severity.ERROR: Color.RED, Severity.WASTE: Color.YELLOW}
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_HEADS = ("TOPIC", "PARTITIONS", "SEGMENTS", "LOG BYTES", "OBJECTS", "OBJECT BYTES", "OLDEST", "NEWEST")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("-t", dest="topic", metavar="TOPIC", action=Once, help="only this topic (default: all topics)")
    parser.add_argument("--deep", action="store_true", help="read every segment, and check each batch and each index")
    parser.add_argument(
        "--stale-after", metavar="TIME", default="1h", type=_duration_ms,
        help="a copy or a deletion that takes longer has been given up, such as 30m, 1h or 2d (default: 1h)",
    )  # fmt: skip
    parser.add_argument(
        "--delete-list", metavar="FILE", help="write the names of objects that could be deleted, one a line"
    )
    parser.add_argument(
        "--journal", metavar="FILE", action=Once,
        help="with --deep: note the sound segments in this file; a later run with it reads only the others",
    )  # fmt: skip
    add_json_option(parser, "a finding, then one a topic")
    add_color_option(parser)
    parser.add_argument("-q", dest="quiet", action="store_true", help="no progress and no summary on stderr")
    add_common_options(parser)


def _duration_ms(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 30m, 1h or 2d")
    return int(match[1]) * _UNITS_S[match[2]] * 1000


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    began = time.monotonic()
    if arguments.journal is not None and not arguments.deep:
        raise ConfigError("--journal is for --deep, which reads the segments", key="--journal")
    options = AuditOptions(arguments.topic, int(time.time() * 1000) - arguments.stale_after, arguments.deep)
    counts: Counter[FindingKind] = Counter()
    paint = paint_from(arguments)
    with ExitStack() as stack:
        session = stack.enter_context(Session.open(config_from(arguments)))
        journal = None
        if arguments.journal is not None:
            journal = stack.enter_context(closing(DeepJournal(Path(arguments.journal), place_of(session.config))))
        sources = stack.enter_context(audit_sources(session, journal))
        delete_list = None if arguments.delete_list is None else stack.enter_context(_opened(arguments.delete_list))
        progress = stack.enter_context(Progress(enabled=not arguments.quiet))
        audit = Audit(sources, options, progress.at)
        for finding in audit.findings():
            counts[finding.kind] += 1
            progress.clear()
            print(_finding_json(finding) if arguments.json else _finding_line(finding, paint), flush=True)
            if delete_list is not None and finding.may_delete and finding.object_name is not None:
                delete_list.write(f"{finding.object_name}\n")
    _print_totals(audit.totals, as_json=arguments.json)
    segments = sum(each.segments for each in audit.totals)
    if segments and not any(each.objects for each in audit.totals):
        print(f"remote-fetch: the store has no object of {segments} segments. {CHECK_THE_URL}", file=sys.stderr)
    if not arguments.quiet:
        for line in _summary(audit, counts, time.monotonic() - began):
            print(f"% {line}", file=sys.stderr)
    return NEGATIVE if any(SEVERITIES[kind] is not Severity.NOTE for kind in counts) else 0


@contextmanager
def _opened(name: str) -> Iterator[TextIO]:
    """The file of the delete list. It is complete only if the audit was. Raises ConfigError."""
    try:
        file = open(name, "x", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigError(
            f"--delete-list {name}: {file_fault(error)}", key="--delete-list", hint="Name a new file"
        ) from None
    with file:
        yield file


def _place(finding: Finding) -> str:
    if finding.segment_id is None:
        return "-"
    partition = finding.segment_id.topic_id_partition
    start = f"{finding.start_offset:020d}-" if finding.start_offset >= 0 else ""
    return f"{partition.topic_partition} {start}{finding.segment_id.id}"


def _finding_line(finding: Finding, paint: Paint) -> str:
    name = "" if finding.object_name is None else f": {finding.object_name}"
    color = _COLORS.get(finding.severity)
    severity = f"{finding.severity:<5}" if color is None else paint(f"{finding.severity:<5}", color)
    return f"{severity}  {finding.kind:<15}  {_place(finding)}  {one_line(finding.text + name)}"


def _finding_json(finding: Finding) -> str:
    segment_id = finding.segment_id
    partition = None if segment_id is None else segment_id.topic_id_partition
    return json.dumps(
        {
            "finding": finding.kind,
            "severity": finding.severity,
            "topic": None if partition is None else partition.topic,
            "topic_id": None if partition is None else str(partition.topic_id),
            "partition": None if partition is None else partition.partition,
            "segment": None if segment_id is None else str(segment_id.id),
            "start_offset": None if finding.start_offset < 0 else finding.start_offset,
            "end_offset": None if finding.end_offset < 0 else finding.end_offset,
            "object": finding.object_name,
            "object_bytes": finding.size_bytes,
            "may_delete": finding.may_delete,
            "text": finding.text,
        }
    )


def _print_totals(totals: tuple[TopicTotals, ...], *, as_json: bool) -> None:
    if as_json:
        for each in totals:
            print(json.dumps({**each._asdict(), "topic_id": str(each.topic_id)}))
        return
    rows = [
        (
            each.topic, str(each.partitions), str(each.segments), human_bytes(each.segment_bytes), str(each.objects),
            human_bytes(each.object_bytes), _time(each.oldest_ms), _time(each.newest_ms),
        )
        for each in totals
    ]  # fmt: skip
    print_table([_HEADS, *rows], frozenset(_HEADS[1:6]))


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return f"{timestamp_ms} ms"


def _summary(audit: Audit, counts: Counter[FindingKind], took_s: float) -> Iterator[str]:
    segments, objects = sum(each.segments for each in audit.totals), sum(each.objects for each in audit.totals)
    yield (
        f"{counted(len(audit.totals), 'topic')}, {counted(segments, 'segment')}, {counted(objects, 'object')} "
        f"in {took_s:.1f} s"
    )
    for severity in Severity:
        found = [f"{kind} {count}" for kind, count in sorted(counts.items()) if SEVERITIES[kind] is severity]
        if found:
            yield f"{severity}: {', '.join(found)}"
    if not counts:
        yield "nothing is wrong"
    if audit.changed:
        yield f"{audit.changed} segments changed during the audit, and were not judged"

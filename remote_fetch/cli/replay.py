"""`remote-fetch replay`: write a range of records into a topic once again.

Rules of the file:

- stdout has one line at the end. Messages go to stderr.
- A replay cannot go on after an error. Then the line says how far it came.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from remote_fetch.amounts import counted, human_bytes
from remote_fetch.cli.bounds import plans_from
from remote_fetch.cli.options import add_common_options, add_json_option, add_range_options, config_from
from remote_fetch.cli.output import print_report
from remote_fetch.cli.progress import Progress
from remote_fetch.cli.restore import add_target_options, target_from
from remote_fetch.config.client import SECURITY_PREFIXES
from remote_fetch.errors import ConfigError
from remote_fetch.observe import ReadPlanned, Report
from remote_fetch.plan.cost import estimate
from remote_fetch.prepare.job import planned_read
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.progress import Position
from remote_fetch.restore.replay import REPLAYED_COLUMNS, Pace, Replayed, replay
from remote_fetch.restore.target import Target
from remote_fetch.scan.scan import Scan
from remote_fetch.session.price_table import open_prices
from remote_fetch.session.session import Session

__all__ = ["add_options", "run"]

_OF_A_CLUSTER = ("bootstrap.servers", *SECURITY_PREFIXES)
"""The properties that reach a cluster. Without --to the target is the cluster that is read."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_range_options(parser, topic_required=True)
    target = add_target_options(
        parser,
        to_help="bootstrap.servers of the target (default: the cluster that is read, with its security)",
        topic_help="the topic to write to",
    )
    target.add_argument(
        "--partition-by", choices=("number", "key"), default="number",
        help="a record goes into the partition of the same number (default), or where its key belongs",
    )  # fmt: skip
    target.add_argument(
        "--timestamps", choices=("kept", "now"), default="kept", help="the records' own (default), or new ones"
    )
    target.add_argument("--same-topic", action="store_true", help="write into the topic that is read, behind its end")
    target.add_argument("--max-records-per-second", type=float, metavar="N", help="send no more than this")
    target.add_argument("--max-bytes-per-second", type=float, metavar="N", help="of keys and values")
    target.add_argument("--dry-run", action="store_true", help="say what would be sent")
    add_json_option(parser, "with the outcome")
    parser.add_argument("-q", dest="quiet", action="store_true", help="no progress and no report on stderr")
    add_common_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if arguments.to_topic is None:
        raise ConfigError("name the topic to write to: --to-topic TOPIC", key="--to-topic")
    for name in ("max_records_per_second", "max_bytes_per_second"):
        limit = getattr(arguments, name)
        if limit is not None and not limit > 0:
            option = "--" + name.replace("_", "-")
            raise ConfigError(f"{option} {limit:g}: give a number above 0", key=option)
    began, done = time.monotonic(), Replayed()
    with (
        Progress(enabled=not arguments.quiet) as progress,
        Session.open(config_from(arguments), progress.tell_wait) as session,
        closing(target_from(arguments, arguments.to, arguments.to_topic, _shared(arguments, session))) as target,
    ):
        prices = open_prices(session.config.settings)
        plans = plans_from(arguments, session)
        _check_target(target, plans, arguments)
        if arguments.dry_run:
            _print_dry(session, plans, arguments)
            return 0
        try:
            replay(
                Scan(session, plans, REPLAYED_COLUMNS).batches(),
                target,
                done,
                keeps_partitions=arguments.partition_by == "number",
                keeps_timestamps=arguments.timestamps == "kept",
                pace=Pace(arguments.max_records_per_second, arguments.max_bytes_per_second),
                progressed=lambda sent: progress.at(_position(sent, planned_read(plans))),
            )
        finally:
            progress.stop()
            print(_as_json(done, session.counters.report()) if arguments.json else _as_text(done))
        if not arguments.quiet:
            print_report(session, time.monotonic() - began, None, prices)
    return 0


def _shared(arguments: argparse.Namespace, session: Session) -> dict[str, Any]:
    """The client's properties that reach the cluster that is read, for a target in it. None for another cluster."""
    own = session.config.librdkafka if arguments.to is None else {}
    return {name: value for name, value in own.items() if name.startswith(_OF_A_CLUSTER)}


def _position(sent: Replayed, planned: ReadPlanned) -> Position:
    """How far the records are sent. They are read a little further, and acknowledged a little less far."""
    ranges = {partition.partition: bounds for partition, bounds in planned.ranges.items()}
    passed = sum(offset - ranges[number][0] for number, offset in sent.next_offsets.items())
    total = sum(stop - first for first, stop in ranges.values())
    return Position("offsets sent", passed, total, records=sent.records, size_bytes=sent.size_bytes)


def _check_target(target: Target, plans: Sequence[PartitionPlan], arguments: argparse.Namespace) -> None:
    """Raise ConfigError if the target lacks partitions, or is the topic that is read."""
    read = [plan.opened.partition for plan in plans]
    missing = sorted({partition.partition for partition in read}.difference(target.partitions()))
    if missing and arguments.partition_by == "number":
        raise ConfigError(
            f"the topic {arguments.to_topic!r} has no partition {missing[0]}",
            key="--to-topic",
            hint="Give it as many partitions as the old topic has, or use --partition-by key",
        )
    if not arguments.same_topic and target.topic_id() in {str(partition.topic_id) for partition in read}:
        raise ConfigError(
            f"{arguments.to_topic!r} is the topic that is read: its consumers would get these records twice",
            key="--to-topic",
            hint="Name another topic with --to-topic, or another cluster with --to. If this is meant: --same-topic",
        )


def _print_dry(session: Session, plans: Sequence[PartitionPlan], arguments: argparse.Namespace) -> None:
    steps = [step for plan in plans for step in plan.steps]
    size_bytes = estimate([steps], session.reader.range_bytes).size_bytes
    offsets = sum(step.offsets for step in steps)
    if arguments.json:
        print(json.dumps({"offsets": offsets, "size_bytes": size_bytes, "target": arguments.to_topic}))
    else:
        print(f"{offsets} offsets, {human_bytes(size_bytes)} of segments, to {arguments.to_topic}")


def _as_json(done: Replayed, report: Report) -> str:
    offsets = {str(number): offset for number, offset in sorted(done.next_offsets.items())}
    fields = {"records": done.records, "size_bytes": done.size_bytes, "next_offsets": offsets}
    return json.dumps({**fields, "report": report.as_dict()})


def _as_text(done: Replayed) -> str:
    reached = ", ".join(f"{number}: {offset}" for number, offset in sorted(done.next_offsets.items()))
    sent = f"{counted(done.records, 'record')}, {human_bytes(done.size_bytes)} of keys and values, sent"
    return f"{sent}; next offset of each partition: {reached}" if reached else sent

"""`remote-fetch restore`: write a topic of the tier into another cluster, each record once.

Rules of the file:

- The journal is a file of the user. The same command again goes on with the job of the journal.
- stdout has one line at the end. Messages go to stderr.
- The exit code is 0 if all is restored, 3 if the new topic differs from the tier, and 1 if the job could not end.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from remote_fetch.amounts import counted, human_bytes
from remote_fetch.cli import NEGATIVE
from remote_fetch.cli.bounds import isolation_of
from remote_fetch.cli.options import Once, add_common_options, add_json_option, config_from, pairs_from
from remote_fetch.cli.output import print_report
from remote_fetch.cli.progress import Progress
from remote_fetch.cli.report import resumable
from remote_fetch.config.client import check_client, check_utf8, of_librdkafka, with_own
from remote_fetch.errors import ConfigError
from remote_fetch.model import TOPIC_NAME_RULE, TopicIdPartition, Uuid, is_topic_name
from remote_fetch.prepare.job import planned_read
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.restore.job import Restore, Restored, RestoreRequest
from remote_fetch.restore.records import old_records
from remote_fetch.restore.target import Target, consumer_properties_of
from remote_fetch.restore.verify import Compared, Unlike, compare, log_start_of, new_records
from remote_fetch.session.price_table import open_prices
from remote_fetch.session.property_check import check_properties
from remote_fetch.session.session import Session

__all__ = ["add_options", "add_target_options", "run", "target_from"]


def add_target_options(parser: argparse.ArgumentParser, *, to_help: str, topic_help: str) -> Any:
    """Add the options of the cluster and topic that are written to. Returns their group."""
    group = parser.add_argument_group("target")
    group.add_argument("--to", metavar="BROKERS", action=Once, help=to_help)
    group.add_argument("--to-topic", metavar="TOPIC", action=Once, help=topic_help)
    group.add_argument(
        "--to-property", metavar="KEY=VALUE", action="append", default=[],
        help="a property of librdkafka's producer, such as security.protocol=SASL_SSL; may be repeated",
    )  # fmt: skip
    return group


def target_from(
    arguments: argparse.Namespace, brokers: str | None, topic: str, shared: Mapping[str, Any] = MappingProxyType({})
) -> Target:
    """The target that the options name. `shared`: the client properties below its own. Raises ConfigError."""
    own = of_librdkafka(pairs_from(arguments.to_property, "--to-property"))
    properties = own if "bootstrap.servers" in own else with_own(shared, own)
    if not is_topic_name(topic):
        raise ConfigError(f"{topic!r} is not a topic name: {TOPIC_NAME_RULE}", key="--to-topic")
    if brokers is not None:
        check_utf8("--to", brokers)
        properties["bootstrap.servers"] = brokers
    if "bootstrap.servers" not in properties:
        raise ConfigError("name the brokers of the target: --to HOST:PORT", key="--to")
    check_client(properties)
    check_properties(consumer_properties_of(properties))
    return Target(properties, topic)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "-t", dest="topic", metavar="TOPIC", action=Once, required=True, help="the old topic; NAME:ID for one topic id"
    )
    parser.add_argument(
        "--journal", metavar="FILE", action=Once, help="the file of the job (default: TOPIC.restore.jsonl)"
    )
    parser.add_argument("--isolation", metavar="LEVEL", help="read_committed (default) or read_uncommitted")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--no-verify", action="store_true", help="do not compare both topics at the end")
    add_json_option(parser, "with the outcome")
    parser.add_argument("-q", dest="quiet", action="store_true", help="no progress and no report on stderr")
    target = add_target_options(
        parser, to_help="bootstrap.servers of the other cluster", topic_help="the new topic (default: the old name)"
    )
    target.add_argument(
        "--topic-config", metavar="KEY=VALUE", action="append", default=[],
        help="a setting of the new topic if it is made; may be repeated",
    )  # fmt: skip
    target.add_argument(
        "--partitions", type=int, default=0, metavar="N",
        help="how many partitions the new topic gets (default: those up to the last one that the tier has)",
    )  # fmt: skip
    target.add_argument(
        "--replication-factor", type=int, default=-1, metavar="N", help="of the new topic (default: as the brokers say)"
    )
    target.add_argument(
        "--any-retention", action="store_true", help="write into a topic that may delete old records by its settings"
    )
    add_common_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    began = time.monotonic()
    name, config = arguments.topic.partition(":")[0], config_from(arguments)
    to_topic = name if arguments.to_topic is None else arguments.to_topic
    request = RestoreRequest(
        arguments.topic,
        Path(arguments.journal or f"{name}.restore.jsonl"),
        isolation_of(arguments, config),
        pairs_from(arguments.topic_config, "--topic-config"),
        arguments.replication_factor,
        arguments.any_retention,
        arguments.partitions,
    )
    with (
        resumable(is_quiet=arguments.quiet),
        Progress("offsets restored", enabled=not arguments.quiet) as progress,
        Session.open(config, progress) as session,
        closing(target_from(arguments, arguments.to, to_topic)) as target,
    ):
        prices = open_prices(session.config.settings)
        restore = Restore(session, target, request)
        if arguments.dry_run:
            _print_dry(restore, target, progress, as_json=arguments.json)
            return 0
        restored = restore.run()
        progress.begin("offsets compared")
        compared = {} if arguments.no_verify else _compared(session, restore, target, progress)
        if (grown := _grown(restore, compared)) is not None:
            restore.give_up(grown)
        progress.stop()
        if not arguments.quiet:
            print_report(session, time.monotonic() - began, None, prices)
        report = session.counters.report()
    if arguments.json:
        print(json.dumps(_as_json(restored, compared, request) | {"report": report.as_dict()}))
    else:
        print(_as_text(restored, compared, request, target.topic))
    return NEGATIVE if _different(compared) else 0


def _print_dry(restore: Restore, target: Target, progress: Progress, *, as_json: bool) -> None:
    plans = restore.planned()
    progress.stop()
    for plan in plans:
        partition = plan.opened.partition
        offsets = sum(step.offsets for step in plan.steps)
        size_bytes = sum(getattr(step, "size_bytes", None) or 0 for step in plan.steps)
        if as_json:
            fields = {**partition.place, "target": target.topic}
            print(json.dumps({**fields, "offsets": offsets, "size_bytes": size_bytes, "segments": len(plan.steps)}))
            continue
        print(
            f"{partition.topic_partition} to {target.topic}-{partition.partition}: "
            f"{counted(offsets, 'offset')}, {human_bytes(size_bytes)} of {counted(len(plan.steps), 'segment')}"
        )


def _compared(session: Session, restore: Restore, target: Target, progress: Progress) -> Mapping[int, Compared]:
    """How each partition compares."""
    topic_id = Uuid.parse(target.topic_id())
    session.observe(planned_read(restore.plans))
    with Session.open(consumer_properties_of(target.properties), progress.tell_wait) as reading:

        def compared(plan: PartitionPlan) -> Compared:
            number = plan.opened.partition.partition
            partition, end = TopicIdPartition(topic_id, target.topic, number), target.ends([number])[number]
            return compare(
                plan,
                restore.maps[number],
                lambda first: old_records(session, plan, first),
                lambda first: new_records(reading, partition, first, end),
                lambda: log_start_of(session, plan),
            )

        return {plan.opened.partition.partition: compared(plan) for plan in restore.plans}


def _grown(restore: Restore, compared: Mapping[int, Compared]) -> int | None:
    """A partition of the new topic that has got other records since the job has ended. None if none has."""
    for number, each in compared.items():
        unlike = each.unlike
        at = None if unlike is None or unlike.source_offset is not None else unlike.target_offset
        if at is not None and at >= restore.maps[number].target_next:
            return number
    return None


def _as_text(restored: Restored, compared: Mapping[int, Compared], request: RestoreRequest, topic: str) -> str:
    records = sum(restored.of_partitions.values())
    offsets = "with their offsets" if restored.keeps_offsets else f"with other offsets, which {request.journal} maps"
    of_run = f"{counted(restored.records, 'record')}, {human_bytes(restored.size_bytes)} of keys and values in this run"
    partitions = counted(len(restored.of_partitions), "partition")
    lines = [f"{topic}: {counted(records, 'record')} in {partitions}, {offsets}; {of_run}"]
    if restored.untimed:
        lines.append(
            f"{counted(restored.untimed, 'record')} got the time of this run: no producer can send theirs, 0 or below"
        )
    lines += [
        f"partition {number}: the old topic no longer has the records before offset {offset}, and not all of them were "
        "compared"
        for number, offset in _deleted(compared).items()
    ]
    lines += [f"partition {number} DIFFERS: {text}" for number, text in _different(compared).items()]
    return "\n".join(lines)


def _different(compared: Mapping[int, Compared]) -> dict[int, str]:
    """The first difference of each partition that differs."""
    return {number: _unlike_text(each.unlike) for number, each in sorted(compared.items()) if each.unlike is not None}


def _deleted(compared: Mapping[int, Compared]) -> dict[int, int]:
    """The offset from which on each partition was compared, if not from its beginning."""
    return {number: each.deleted_before for number, each in sorted(compared.items()) if each.deleted_before is not None}


def _unlike_text(unlike: Unlike) -> str:
    if unlike.source_offset is None:
        return f"the new topic has more records, from offset {unlike.target_offset} on"
    if unlike.target_offset is None:
        return f"the new topic lacks the records from offset {unlike.source_offset} of the old one on"
    return f"offset {unlike.source_offset} of the old topic is not offset {unlike.target_offset} of the new one"


def _as_json(restored: Restored, compared: Mapping[int, Compared], request: RestoreRequest) -> dict[str, Any]:
    return {
        "records": sum(restored.of_partitions.values()),
        "partitions": {str(number): count for number, count in restored.of_partitions.items()},
        "records_of_this_run": restored.records,
        "bytes_of_this_run": restored.size_bytes,
        "untimed": restored.untimed,
        "keeps_offsets": restored.keeps_offsets,
        "journal": str(request.journal),
        "deleted_before": {str(number): offset for number, offset in _deleted(compared).items()},
        "different": {str(number): text for number, text in _different(compared).items()},
    }

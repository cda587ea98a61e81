"""`remote-fetch verify`: compare a topic's tier with the broker, record for record.

Rules of the file:

- stdout has a line for each partition and for each difference. Messages go to stderr.
- The exit code is 0 if all is alike, 3 if something differs, and 1 if the comparison could not be made.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from remote_fetch.amounts import counted
from remote_fetch.checks.fetch_counter import FetchCounter
from remote_fetch.checks.rates import Rate, broker_rate, store_rate
from remote_fetch.checks.verify import (
    Choice,
    Finding,
    PartitionVerdict,
    broker_of,
    choose,
    has_segments,
    text_of_failure,
    verify,
)
from remote_fetch.cli import NEGATIVE
from remote_fetch.cli.bounds import plans_from
from remote_fetch.cli.color import Color, Paint, add_color_option, paint_from
from remote_fetch.cli.options import CHECK_THE_URL, add_common_options, add_json_option, add_range_options, config_from
from remote_fetch.cli.output import has_report, print_report
from remote_fetch.cli.progress import Progress
from remote_fetch.errors import ConfigError, RemoteFetchError, SegmentNotFound
from remote_fetch.failures.broker_errors import BrokerStalled
from remote_fetch.observe import Report
from remote_fetch.plan.ranges import Reason, SegmentSlice
from remote_fetch.prepare.job import planned_read
from remote_fetch.progress import Position
from remote_fetch.session.price_table import open_prices
from remote_fetch.session.session import Session

__all__ = ["add_options", "run"]

_SHOWN_BYTES = 60
_LIMIT, _LIMIT_MS = "fetch.remote.broker.timeout.ms", 60_000
"""A broker that cannot read its tier gives nothing for ever, and no finding would be printed."""
_OF_BROKERS = frozenset((Reason.LOCAL, Reason.NOT_TIERED, Reason.UNSTABLE))
"""A reader takes such offsets from the brokers, whichever URL is given."""
_COMPARE_LOCAL = "The brokers have them on their disks; to compare the tier's copy give -X fetch.remote.when=always"
_CHECK_THE_RANGE = "remote-fetch bounds shows which offsets the tier has, and doctor whether the URL is right"
_KNOWN_BUG = (
    "the broker shows a record of an aborted transaction: Kafka 3.6 to 3.9.0 do under read_committed (KAFKA-17801)"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_range_options(parser, topic_required=True)
    add_common_options(parser)
    checks = parser.add_argument_group("comparison")
    checks.add_argument(
        "--sample", type=float, default=1.0, metavar="SHARE", help="compare this share of the segments, such as 0.05"
    )
    checks.add_argument(
        "--seed", type=int, metavar="N", help="choose the same segments as a run that printed this seed"
    )
    checks.add_argument(
        "--time", action="store_true", help="first read the same records each way alone, and print how fast that is"
    )
    add_json_option(checks, "a partition")
    add_color_option(checks)
    checks.add_argument("-q", dest="quiet", action="store_true", help="no progress and no report on stderr")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if not 0 < arguments.sample <= 1:
        raise ConfigError(f"--sample {arguments.sample:g}: give a share above 0 and up to 1", key="--sample")
    seed = random.SystemRandom().randrange(10**9) if arguments.seed is None else arguments.seed
    began = time.monotonic()
    is_different = False
    counter = FetchCounter()
    is_sample = arguments.sample < 1
    config = {_LIMIT: _LIMIT_MS, **config_from(arguments)}
    if arguments.time:
        config |= counter.properties
    paint = paint_from(arguments)
    with (
        Progress("offsets compared", enabled=not arguments.quiet) as progress,
        Session.open(config, progress.tell_wait if is_sample else progress) as session,
    ):
        broker_of(session)  # before a plan is made
        prices = open_prices(session.config.settings)
        plans = plans_from(arguments, session)
        choices = choose(plans, arguments.sample, random.Random(seed))
        _check_located(session, choices)
        try:
            if arguments.time:
                for line in _timed(session, counter, choices):
                    progress.clear()
                    print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)
                if not is_sample:
                    progress(planned_read(plans))
            compared = _sampled(progress, choices) if is_sample else lambda: None
            for verdict in verify(session, choices, compared):
                is_different = is_different or bool(verdict.findings)
                progress.clear()
                for line in [_json(verdict)] if arguments.json else _lines(verdict, paint):
                    print(line, flush=True)
            _check_compared(session, choices, arguments.topic)
        finally:
            progress.stop()
            if has_report(session) and not arguments.quiet:
                if is_sample:
                    print(f"% chosen with --seed {seed}", file=sys.stderr)
                print_report(session, time.monotonic() - began, None, prices)
    return NEGATIVE if is_different else 0


def _check_located(session: Session, choices: Sequence[Choice]) -> None:
    """Raise the error of the locator if that is why nothing can be compared: it is no finding of each partition."""
    if not any(choice.steps for choice in choices):
        session.configured_locator.check()


def _check_compared(session: Session, choices: Sequence[Choice], topic: str) -> None:
    """Raise an error if nothing was compared, so that a wrong URL is no success."""
    if not has_segments(session, choices):
        raise _nothing_compared(choices, topic)


def _nothing_compared(choices: Sequence[Choice], topic: str) -> RemoteFetchError:
    """The error of that. It blames the URL only if the store should have the offsets."""
    left_out = sum((Counter(choice.left_out) for choice in choices), Counter[str]())
    if left_out.keys() <= _OF_BROKERS:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "the range is empty"
        text = f"nothing was compared: of {topic!r} no wanted offset is read from the store ({reasons})"
        return ConfigError(text, hint=_COMPARE_LOCAL if Reason.LOCAL in left_out else _CHECK_THE_RANGE)
    text = f"nothing was compared: the store has no segment of {topic!r} in the wanted offsets"
    return SegmentNotFound(text, hint=CHECK_THE_URL)


def _sampled(progress: Progress, choices: Iterable[Choice]) -> Callable[[], None]:
    """Shows how many of the chosen segments are compared: offsets between them are passed over, and tell no share."""
    total = sum(choice.size for choice in choices)
    done = itertools.count(1)
    return lambda: progress.at(Position("segments compared", next(done), total))


def _lines(verdict: PartitionVerdict, paint: Paint) -> Iterator[str]:
    place = verdict.partition.topic_partition
    left = ", ".join(f"{count} {reason}" for reason, count in sorted(verdict.left_out.items()))
    outcome = counted(verdict.steps, "segment")
    if verdict.findings:
        outcome = f"{paint('DIFFERENT', Color.RED)} in {len(verdict.findings)} of {outcome}"
    yield (
        f"{place}: {counted(verdict.records, 'record')} alike, {outcome}"
        + (f"; offsets not compared: {left}" if left else "")
    )
    for finding in verdict.findings:
        yield from _finding_lines(place, finding, paint)
    for finding in verdict.without_headers:
        yield f"{place}: compared without headers, in {_place(finding)}: {finding.text}"
    for finding in verdict.unheard:
        yield f"{place}: not compared, in {_place(finding)}: {finding.text}"


def _finding_lines(place: str, finding: Finding, paint: Paint) -> Iterator[str]:
    where = f"in {_place(finding)}"
    difference = finding.difference
    if difference is None:
        side = "broker" if finding.is_of_broker else "store"
        yield f"{place}: {paint(f'the {side} does not give what it should', Color.RED)} {where}: {finding.text}"
        return
    yield f"{place}, offset {difference.offset}, {where}: {paint(difference.text, Color.RED)}"
    if difference.broker is None or difference.store is None:
        side, row = ("store", difference.store) if difference.broker is None else ("broker", difference.broker)
        yield f"  {side}: {_shown(row or {}, tuple(row or ()))}"
    else:
        yield f"  store:  {_shown(difference.store, difference.columns)}"
        yield f"  broker: {_shown(difference.broker, difference.columns)}"
    if finding.is_aborted_shown:
        yield f"  {_KNOWN_BUG}"


def _place(finding: Finding) -> str:
    step = finding.step
    if isinstance(step, SegmentSlice):
        return f"segment {step.segment.object_stem}"
    offsets = f"offsets {step.first_offset} to {step.last_offset}"
    return f"a hole of the tier, {offsets}" if step.reason == Reason.HOLE else offsets


def _shown(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    return " ".join(f"{name}={_short(row[name])}" for name in columns)


def _short(value: Any) -> str:
    if isinstance(value, bytes) and len(value) > _SHOWN_BYTES:
        return f"{value[:_SHOWN_BYTES]!r}... ({len(value)} bytes)"
    return repr(value)


def _json(verdict: PartitionVerdict) -> str:
    fields = {**verdict.partition.place, "records": verdict.records, "segments": verdict.steps}
    found = {"findings": verdict.findings, "unheard": verdict.unheard, "without_headers": verdict.without_headers}
    told = {name: [_finding_fields(finding) for finding in findings] for name, findings in found.items()}
    return json.dumps({**fields, "left_out": dict(verdict.left_out), **told})


def _finding_fields(finding: Finding) -> Mapping[str, Any]:
    def side(row: Mapping[str, Any] | None) -> Mapping[str, str] | None:
        return None if row is None else {name: _short(value) for name, value in row.items()}

    difference, segment = finding.difference, getattr(finding.step, "segment", None)
    return {
        "segment": None if segment is None else str(segment.segment_id.id),
        "first_offset": finding.step.first_offset,
        "last_offset": finding.step.last_offset,
        "error": finding.text or None,
        "offset": None if difference is None else difference.offset,
        "columns": [] if difference is None else list(difference.columns),
        "store": None if difference is None else side(difference.store),
        "broker": None if difference is None else side(difference.broker),
        "is_aborted_shown": finding.is_aborted_shown,
    }


def _timed(session: Session, counter: FetchCounter, choices: Sequence[Choice]) -> Iterator[str]:
    """The speed of each way alone. The store is first, so that caches are warm for the broker."""
    before = session.counters.report()
    yield f"store: {_told(lambda: store_rate(session, choices))}"
    yield f"  {_gets(before, session.counters.report())}"
    fetches = _fetches(session, counter, choices)
    yield f"broker: {_told(lambda: broker_rate(broker_of(session), choices))}"
    if fetches is not None:
        yield f"  {(_fetches(session, counter, choices) or 0) - fetches} fetch requests"


def _told(rate: Callable[[], Rate]) -> str:
    """A rate, or the failure that ended its reading: the comparison after it finds that too, and where."""
    try:
        return str(rate())
    except (BrokerStalled, RemoteFetchError) as error:
        return f"no rate: {text_of_failure(error)}"


def _fetches(session: Session, counter: FetchCounter, choices: Sequence[Choice]) -> int | None:
    """The fetch requests so far of the consumers that read the choices. None if nothing is read."""
    if session.brokers is None or not choices:
        return None
    return counter.total(session.brokers.cluster.consumer(choices[0].plan.opened.isolation))


def _gets(before: Report, after: Report) -> str:
    gets = after.remote_gets + after.index_gets - before.remote_gets - before.index_gets
    size_bytes = after.remote_bytes + after.index_bytes - before.remote_bytes - before.index_bytes
    return f"{gets} GETs of {size_bytes / 1e6:.1f} MB"

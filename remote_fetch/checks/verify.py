"""Reads a topic's tier both ways, from the store and through the broker, and compares record for record.

Rules of the file:

- The broker is the oracle. Its records come through confluent_kafka's own consumer.
- Nothing falls back here. A segment that cannot be read is a finding, and so is a partition that cannot be opened.
- Compared is what a read from the store would read there, and the holes of the tier. All else is counted by reason.
- A step with a header key that is not UTF-8 is compared without headers: the broker's client cannot give them.
- After the first difference of a step the check goes on with the next one.
- The broker often reads the same objects. So it is not asked for what the store cannot give: it could wait for ever.
- A broker that has lost its storage stalls at each segment. So each stall halves the next wait, until the broker gives
  records. Records that it does not give within a shortened wait are not compared: it may be slow. That is no finding.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remote_fetch.checks.comparison import Difference, RowStream, first_difference
from remote_fetch.errors import ConfigError, ErrorKind, RemoteFetchError, SegmentNotFound, UnsupportedFormat
from remote_fetch.failures.broker_errors import BrokerStalled
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.model import IsolationLevel, TopicIdPartition
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason, SegmentSlice, slices_of
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.broker import BrokerReader
from remote_fetch.session.fallback import FallbackRule
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "VERIFIED_COLUMNS",
    "WITHOUT_HEADERS",
    "Choice",
    "Finding",
    "PartitionVerdict",
    "broker_of",
    "broker_rows",
    "choose",
    "has_segments",
    "store_rows",
    "stretches",
    "text_of_failure",
    "verify",
]

VERIFIED_COLUMNS = ("offset", "key", "value", "headers", "timestampMs", "timestampType", "leaderEpoch")
"""Everything of a record that Kafka's consumers get."""
WITHOUT_HEADERS = tuple(name for name in VERIFIED_COLUMNS if name != "headers")
"""The broker's client gives these of every record."""
_REASON = "verify"
_UNCOMPARED = frozenset((Reason.NOT_TIERED, Reason.UNSTABLE, Reason.LOCAL, ErrorKind.NOT_CONFIGURED))
"""A broker range with one of these reasons is no fault of the store."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a step: a difference, or the error of the store or of the broker in `text`.

    `is_of_broker`: the broker answers, and does not give records of the step. `stall`: because it has given nothing.
    `is_aborted_shown`: the broker shows a record of an aborted transaction under read_committed. Kafka 3.6 to 3.9.0 do
    (KAFKA-17801). `is_of_headers`: the broker's client cannot give the headers of a record, which is no fault.
    """

    step: PlanStep
    difference: Difference | None = None
    text: str = ""
    is_aborted_shown: bool = False
    is_of_broker: bool = False
    is_of_headers: bool = False
    stall: BrokerStalled | None = None


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The result for one partition. `left_out` counts offsets that were not compared, by reason.

    `unheard` are the steps of which the broker gave nothing within a wait that was shortened. They count in `left_out`.
    `without_headers` are the steps that were compared without headers, each with the reason.
    """

    partition: TopicIdPartition
    records: int
    steps: int
    left_out: Mapping[str, int]
    findings: Sequence[Finding] = field(default_factory=tuple)
    unheard: Sequence[Finding] = field(default_factory=tuple)
    without_headers: Sequence[Finding] = field(default_factory=tuple)


@dataclass(slots=True)
class _Oracle:
    """The broker. `stalls`: the segments that it has not given, since it gave records."""

    reader: BrokerReader
    stalls: int = 0

    def rows(
        self, plan: PartitionPlan, first: int, last: int, columns: Sequence[str] = VERIFIED_COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        for batch in broker_rows(self.reader, plan, first, last, self.stalls, columns):
            self.stalls = 0
            yield batch


def broker_of(session: Session) -> BrokerReader:
    """The reader of the session's brokers. Raises ConfigError if none is configured."""
    broker = session.fallback.reader
    if broker is None:
        raise ConfigError("verify compares with a broker: set bootstrap.servers (-b)", key="bootstrap.servers")
    return broker


@dataclass(frozen=True, slots=True)
class Choice:
    """The steps of a partition that are compared. `left_out` counts the offsets of the others, by reason.

    `unread` are the others that the store should give and does not. Each of them is a finding.
    """

    plan: PartitionPlan
    steps: Sequence[PlanStep]
    left_out: Mapping[str, int]
    unread: Sequence[BrokerRange] = ()

    @property
    def size(self) -> int:
        """How many steps get a verdict."""
        return len(self.steps) + len(self.unread)


def choose(plans: Iterable[PartitionPlan], share: float = 1.0, dice: random.Random | None = None) -> list[Choice]:
    """The steps of each plan that are compared.

    `share` of the slices of a plan are chosen at random, at least one. Holes of the tier are compared all.
    """
    dice = dice or random.Random()
    return [_choice(plan, share, dice) for plan in plans]


def _choice(plan: PartitionPlan, share: float, dice: random.Random) -> Choice:
    left_out: Counter[str] = Counter()
    slices = slices_of(plan.steps)
    if share < 1 and slices:
        slices = dice.sample(slices, max(1, round(share * len(slices))))
    chosen = {step.first_offset for step in slices}  # each offset is in one step
    wanted: list[PlanStep] = []
    unread: list[BrokerRange] = []
    for step in plan.steps:
        is_hole = isinstance(step, BrokerRange) and step.reason == Reason.HOLE
        if is_hole or step.first_offset in chosen:
            wanted.append(step)
            continue
        reason = step.reason if isinstance(step, BrokerRange) else "not sampled"
        left_out[reason] += step.offsets
        if isinstance(step, BrokerRange) and reason not in _UNCOMPARED:
            unread.append(step)
    return Choice(plan, wanted, left_out, unread)


def verify(
    session: Session, choices: Iterable[Choice], compared: Callable[[], None] = lambda: None
) -> Iterator[PartitionVerdict]:
    """Compare the records of each choice, one partition after another. Calls `compared` after each step.

    Raises ConfigError without a broker, KafkaException, and OffsetOutOfRange if records are deleted during the check.
    """
    oracle = _Oracle(broker_of(session))
    for choice in choices:
        yield _verify_partition(session, oracle, choice, compared)


def _verify_partition(
    session: Session, oracle: _Oracle, choice: Choice, compared: Callable[[], None]
) -> PartitionVerdict:
    plan, steps = choice.plan, choice.steps
    findings: list[Finding] = []
    unheard: list[Finding] = []
    without_headers: list[Finding] = []
    left_out = Counter(choice.left_out)
    records = 0
    for unread in choice.unread:
        findings.append(Finding(unread, text=unread.detail or f"it cannot be read ({unread.reason})"))
        compared()
    for stretch in stretches(steps):
        of_broker: RowStream | None = None
        for step in stretch:
            of_broker = of_broker or RowStream(oracle.rows(plan, step.first_offset, stretch[-1].last_offset))
            of_store = RowStream(store_rows(session, plan, [step]))
            finding, is_behind = _compare(of_store, of_broker, step)
            of_store.close()
            if finding is not None and finding.is_of_headers:  # the record may be of the next step
                of_store, finding = _compare_alone(session, oracle, plan, step, VERIFIED_COLUMNS)
            if finding is not None and finding.is_of_headers:
                without_headers.append(finding)
                of_store, finding = _compare_alone(session, oracle, plan, step, WITHOUT_HEADERS)
            records += of_store.taken
            stall = finding.stall if finding is not None else None
            oracle.stalls += stall is not None
            if finding is not None and stall is not None and stall.was_hurried:
                unheard.append(finding)
                left_out["stalled"] += step.offsets
            elif finding is not None:
                is_aborted = _is_aborted(session, plan, step, finding.difference)
                findings.append(replace(finding, is_aborted_shown=is_aborted))
            if not is_behind:
                of_broker.close()
                of_broker = None
            compared()
    partition, found = plan.opened.partition, (tuple(findings), tuple(unheard), tuple(without_headers))
    return PartitionVerdict(partition, records, choice.size, left_out, *found)


def _compare_alone(
    session: Session, oracle: _Oracle, plan: PartitionPlan, step: PlanStep, columns: Sequence[str]
) -> tuple[RowStream, Finding | None]:
    """Ask the broker for one step alone, and compare it. Returns the store's rows, already closed, and the finding."""
    of_broker = RowStream(oracle.rows(plan, step.first_offset, step.last_offset, columns))
    of_store = RowStream(store_rows(session, plan, [step], columns))
    with closing(of_broker), closing(of_store):
        return of_store, _compare(of_store, of_broker, step)[0]


def _compare(of_store: RowStream, of_broker: RowStream, step: PlanStep) -> tuple[Finding | None, bool]:
    """A finding if something is wrong, and whether `of_broker` is behind the step. It is not if one side has failed.

    The broker may have failed at the next step's records. So it is blamed if the store has a row that it did not give.
    """
    finding = None
    try:
        difference = first_difference(of_store, of_broker, step.stop_offset)
        finding = Finding(step, difference) if difference is not None else None
        of_broker.skip_below(step.stop_offset)
    except (BrokerStalled, RemoteFetchError) as error:
        text = text_of_failure(error)
        is_of_step = (
            not of_broker.has_failed or isinstance(step, BrokerRange) or of_store.below(step.stop_offset) is not None
        )
        if finding is None and is_of_step:
            finding = Finding(
                step,
                text=text,
                is_of_broker=of_broker.has_failed,
                is_of_headers=of_broker.has_failed and isinstance(error, UnsupportedFormat),
                stall=error if isinstance(error, BrokerStalled) else None,
            )
        return finding, False
    return finding, True


def text_of_failure(error: BrokerStalled | RemoteFetchError) -> str:
    """The text of an error that is a finding. Raises one that ends the check."""
    if isinstance(error, BrokerStalled):
        return str(error.args[0].str())
    if not error.falls_back:
        raise error
    return str(error)


def has_segments(session: Session, choices: Iterable[Choice]) -> bool:
    """Whether the store has something of the choices. False also if all logs that were asked for are missing.

    Of a partition that cannot be opened, the logs of the first and of the last segment are asked for.
    """
    return any(
        choice.steps or any(_has_log(session, unread.partition) for unread in choice.unread) for choice in choices
    )


def _has_log(session: Session, partition: TopicIdPartition) -> bool:
    try:
        segments = session.locator.timeline(partition).segments
    except RemoteFetchError:
        return True
    for segment in {segments[0], segments[-1]} if segments else ():
        try:
            session.storage.reader.read(RangeRequest(segment, 0, 1))
        except SegmentNotFound:
            continue
        except RemoteFetchError:
            pass  # it is not missing
        return True
    return False


def stretches(steps: Sequence[PlanStep]) -> Iterator[list[PlanStep]]:
    """The steps in groups whose offsets follow each other, so that the broker is asked for each group once."""
    group: list[PlanStep] = []
    for step in steps:
        if group and step.first_offset != group[-1].stop_offset:
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def store_rows(
    session: Session, plan: PartitionPlan, steps: Sequence[PlanStep], columns: Sequence[str] = VERIFIED_COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The rows of these steps out of the store alone. A hole has none. Raises the errors of the store."""
    slices = tuple(slices_of(steps))
    alone = FallbackRule(session.storage.observe, lambda reason: None, None)
    return Scan(session, [replace(plan, steps=slices)], columns, fallback=alone).batches()


def broker_rows(
    broker: BrokerReader,
    plan: PartitionPlan,
    first: int,
    last: int,
    haste: int = 0,
    columns: Sequence[str] = VERIFIED_COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """The rows of offsets [first, last] through the broker, with `haste` as in its `read`."""
    step = BrokerRange(plan.opened.partition, first, last, _REASON)
    return broker.read(step, plan.opened.isolation, columns, haste=haste)


def _is_aborted(session: Session, plan: PartitionPlan, step: PlanStep, difference: Difference | None) -> bool:
    """Whether the broker alone shows the record, and the store has it as one of an aborted transaction."""
    is_committed = plan.opened.isolation is IsolationLevel.READ_COMMITTED
    if difference is None or difference.store is not None or not is_committed or not isinstance(step, SegmentSlice):
        return False
    shown = difference.broker or {}
    opened = replace(plan.opened, isolation=IsolationLevel.READ_UNCOMMITTED)
    whole = RowStream(store_rows(session, replace(plan, opened=opened, aborted=None), [step], tuple(shown)))
    whole.skip_below(difference.offset)
    rows = whole.below(difference.offset + 1)
    return rows is not None and rows.slice(0, 1).to_pylist()[0] == shown

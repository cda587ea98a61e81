"""The gain of a reader of one topic: a small sample read both ways, compared and timed, and the size of the tier.

Rules of the file:

- The sample is compared before it is timed, so that both ways have their connections, and caches favour neither.
- Times for the whole topic are those of the sample, scaled by offsets. They hold for one process on this machine.
- A part of a segment is enough: large segments are not read whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remote_fetch.checks.advice import TierShape
from remote_fetch.checks.rates import Rate, broker_rate, store_rate
from remote_fetch.checks.verify import (
    VERIFIED_COLUMNS,
    WITHOUT_HEADERS,
    Choice,
    Finding,
    PartitionVerdict,
    broker_of,
    choose,
    verify,
)
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.formats.batches import BatchHeader, read_header
from remote_fetch.model import IsolationLevel, RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.plan.cost import PlanCost, estimate
from remote_fetch.plan.ranges import SegmentSlice, slices_of
from remote_fetch.prepare.planner import Planner
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.session.session import Session

__all__ = ["Gain", "Tier", "gain_of", "open_tier", "shape_of"]

_PIECES = 4
_PIECE_BYTES = 1 << 20
"""A sample is cut into pieces of at least this size: each one costs a new beginning at the broker."""
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Tier:
    """The tier of one topic, planned without a look at any segment.

    - `cost` is that of reading all of it once.
    - `offsets` are in the tier, `offsets_of_log` are those of the whole log.
    - `only_tiered` offsets are on no broker's disk any more. None: the brokers do not tell (extra `broker-api`).
    """

    plans: Sequence[PartitionPlan]
    cost: PlanCost
    offsets: int
    offsets_of_log: int
    only_tiered: int | None

    @property
    def is_end_known(self) -> bool:
        """Whether brokers tell the end of each log."""
        return all(plan.opened.log.end_offset is not None for plan in self.plans)

    @property
    def segments(self) -> list[RemoteLogSegmentMetadata]:
        """The segments that a read takes, in order of partition and offset."""
        return [piece.segment for plan in self.plans for piece in slices_of(plan.steps)]


@dataclass(frozen=True, slots=True)
class Gain:
    """The sample: how each way did, and what was different. `offsets` are those that each way went through.

    Pieces that the broker does not give have a verdict, and count for no rate.
    """

    store: Rate
    broker: Rate
    offsets: int
    verdicts: Sequence[PartitionVerdict]

    @property
    def finding(self) -> Finding | None:
        """The worst finding, None if both ways gave the same records.

        A difference comes first, then records of aborted transactions (KAFKA-17801), then a broker that gives nothing.
        """
        found = [finding for verdict in self.verdicts for finding in verdict.findings]
        return min(found, key=lambda each: (each.is_of_broker, each.is_aborted_shown), default=None)


def open_tier(session: Session, topic: str, isolation: IsolationLevel) -> Tier:
    """Plan a read of all that is in the tier. Raises the errors of planning."""
    planner = Planner(session, isolation)
    partitions = session.locator.partitions(topic)
    plans = planner.open(partitions, lambda opened: planner.outline(opened, opened.first_offset, opened.end_offset))
    slices = [slices_of(plan.steps) for plan in plans]
    offsets = sum(piece.offsets for pieces in slices for piece in pieces)
    cost = estimate(slices, session.config.settings.range_bytes, session.stored_size)
    in_log = sum(plan.opened.end_offset - plan.opened.first_offset for plan in plans)
    return Tier(plans, cost, offsets, in_log, _only_tiered(session, partitions, plans))


def _only_tiered(
    session: Session, partitions: Sequence[TopicIdPartition], plans: Sequence[PartitionPlan]
) -> int | None:
    logs = session.local_logs.ask(partitions, "it is unknown what only the tier has")
    starts = {partition: log.start_offset for partition, log in logs.items()}
    found = 0
    for plan in plans:
        local_start = starts.get(plan.opened.partition)
        if local_start is None:
            return None
        pieces = slices_of(plan.steps)
        found += sum(max(min(piece.stop_offset, local_start) - piece.first_offset, 0) for piece in pieces)
    return found


def gain_of(session: Session, tier: Tier, sample_bytes: int, dice: random.Random) -> Gain:
    """Read a sample of about `sample_bytes` both ways: at most four pieces of segments, chosen at random.

    Raises ConfigError without brokers, KafkaException, and the errors of planning and of the store.
    """
    broker = broker_of(session)
    choices = list(_sample(session, tier, sample_bytes, dice))
    verdicts = list(verify(session, choices))
    given = [
        choice
        for choice, verdict in zip(choices, verdicts, strict=True)
        if not verdict.unheard and not any(finding.is_of_broker for finding in verdict.findings)
    ]
    offsets = sum(step.offsets for choice in given for step in choice.steps)
    columns = WITHOUT_HEADERS if any(verdict.without_headers for verdict in verdicts) else VERIFIED_COLUMNS
    return Gain(store_rate(session, given, columns), broker_rate(broker, given, columns), offsets, verdicts)


def _sample(session: Session, tier: Tier, sample_bytes: int, dice: random.Random) -> Iterator[Choice]:
    found = [(plan.opened, piece) for plan in tier.plans for piece in slices_of(plan.steps)]
    chosen = dice.sample(found, min(_PIECES, len(found), max(1, sample_bytes // _PIECE_BYTES)))
    for opened, piece in sorted(chosen, key=lambda each: (each[0].partition.partition, each[1].first_offset)):
        stop = piece.first_offset + _offsets_of(piece, sample_bytes // len(chosen))
        planner = Planner(session, opened.isolation)
        yield from choose([planner.plan(opened, piece.first_offset, stop)])


def _offsets_of(piece: SegmentSlice, size_bytes: int) -> int:
    """How many offsets of a slice have about so many bytes, one at least. All of a slice whose size is unknown."""
    offsets, whole_bytes = piece.offsets, piece.size_bytes
    return offsets if whole_bytes is None else min(offsets, max(1, offsets * size_bytes // whole_bytes))


def shape_of(session: Session, tier: Tier, chunk_bytes: int | None) -> TierShape:
    """The facts for advice. Reads the first MiB of the first segment. Raises the errors of the store."""
    segments = tier.segments
    headers = list(_headers(session, segments[0])) if segments else []
    return TierShape(
        segments=len(segments),
        size_bytes=tier.cost.size_bytes,
        batch_bytes=sum(header.size_bytes for header in headers) / len(headers) if headers else None,
        batch_records=sum(header.record_count for header in headers) / len(headers) if headers else None,
        chunk_bytes=chunk_bytes,
    )


def _headers(session: Session, segment: RemoteLogSegmentMetadata) -> Iterator[BatchHeader]:
    """The headers of the first batches of records. Batches of Kafka before 0.11 do not tell their records."""
    stop = min(_HEAD_BYTES, segment.known_size_bytes or _HEAD_BYTES)
    data = session.reader.read(RangeRequest(segment, 0, stop))
    at = 0
    while not isinstance(header := read_header(data, at, position=at), int):
        if header.magic == 2 and not header.is_control:
            yield header
        at += header.size_bytes

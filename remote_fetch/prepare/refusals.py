"""Errors for offsets that neither the store nor a broker can give: a read of a bucket alone has no broker to go to.

Rules of the file:

- Pure. An error names the offsets, the object and what to do.
- An exception that is not an error of this package is named with its place: it is a bug or a broken environment.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from remote_fetch.errors import RemoteFetchError, SegmentNotFound, Unlocatable
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import unusable_text
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason

__all__ = ["GAP_HINT", "not_to_be_had", "refuse_broker_ranges", "unexpected"]


GAP_HINT = (
    "If the topic was compacted before it was tiered, compaction may have left this gap, and a listing cannot tell "
    "that from a missing object: set bootstrap.servers, or read around it, with an end before it and a start behind it"
)


def refuse_broker_ranges(timeline: Timeline, steps: Sequence[PlanStep]) -> None:
    """Raise Unlocatable for the first stretch that needs a broker: a bucket-only read has none.

    For a hole the error tells what `timeline` lacks, because that may be what the hole was.
    """
    partition = timeline.partition
    missing: list[BrokerRange] = []
    for step in steps:
        if isinstance(step, BrokerRange):
            missing.append(step)
        elif missing:
            break
    if missing:
        first, last = missing[0].first_offset, missing[-1].last_offset
        unusable = unusable_text(timeline.orphan_updates, timeline.malformed_records)
        is_hole = any(step.reason == Reason.HOLE for step in missing)
        raise Unlocatable(
            f"offsets {first} to {last} cannot be read from the bucket alone{_why(missing)}"
            + (f"; {unusable}" if unusable and is_hole else ""),
            first=first,
            last=last,
            topic=partition.topic,
            partition=partition.partition,
            hint=_hint(missing),
        )


def _why(missing: Sequence[BrokerRange]) -> str:
    if len(missing) == 1:
        return f" ({missing[0].reason})"
    return ": " + ", ".join(f"{step.first_offset} to {step.last_offset} ({step.reason})" for step in missing)


def _hint(missing: Sequence[BrokerRange]) -> str:
    reason, *others = (str(step.reason) for step in missing)
    if reason == Reason.UNSTABLE and others == [Reason.HOLE]:
        return f"A transaction that is open where the hole begins may end in it, and only a broker knows how: {_SET}"
    return _HINTS.get(reason, f"A broker may have these offsets: {_SET}")


_SET = "set bootstrap.servers (-b)"
_HINTS: dict[str, str] = {
    Reason.HOLE: GAP_HINT,
    Reason.UNSTABLE: f"A transaction may be open there, and only a broker knows how it ends: {_SET}",
    Reason.NOT_TIERED: f"The tier ends before them, and only a broker has them: {_SET}",
}


def not_to_be_had(
    partition: TopicIdPartition, step: PlanStep, error: RemoteFetchError, *, may_be_gap: bool = False
) -> RemoteFetchError:
    """The error to raise if no other copy exists: the error itself, or one with the offsets of a missing object.

    `may_be_gap`: no object was missing. One ended before the next begins.
    """
    if not isinstance(error, SegmentNotFound):
        return error
    return Unlocatable(
        f"no object holds offsets {step.first_offset} to {step.last_offset}: {error.message}",
        first=step.first_offset,
        last=step.last_offset,
        topic=partition.topic,
        partition=partition.partition,
        object_name=error.object_name,
        hint=GAP_HINT if may_be_gap else "They were deleted or never uploaded here; a broker may still have them",
    )


def unexpected(error: Exception) -> str:
    """The text for an exception that tells nothing of a store or a broker: its type, its place, and what to do.

    It is a bug or a broken environment: a missing package, one built for another version, no memory left.
    """
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" in {place[0].filename}, line {place[0].lineno}" if place else ""
    return (
        f"{type(error).__module__}.{type(error).__qualname__}{where}: {error}. No store says that: a fetcher or a "
        "package of this environment is broken; try the same with read_arrow, which raises it"
    )

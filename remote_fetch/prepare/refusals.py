"""Errors for offsets that cannot be read: the store does not have them, and no broker is configured.

Rules of the file:

- Pure. An error names the offsets, the object and what to do.
- The message for an unexpected exception has its type, file and line, because it is a bug or a broken installation.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from remote_fetch.errors import RemoteFetchError, SegmentNotFound, Unlocatable
from remote_fetch.locate.listing import GAP_HINT
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import unusable_text
from remote_fetch.plan.ranges import BrokerRange, PlanStep, Reason
from remote_fetch.session.fallback import ASK_A_BROKER, SET_BROKERS

__all__ = ["no_other_copy", "original", "refuse_broker_ranges", "unexpected"]


def refuse_broker_ranges(timeline: Timeline, steps: Sequence[PlanStep]) -> None:
    """Raise Unlocatable for the first offsets that only a broker could give.

    For a hole the error also counts the metadata that `timeline` could not use, which may be the cause.
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
            hint=_hint(missing),
            **partition.place,
        )


def _why(missing: Sequence[BrokerRange]) -> str:
    if len(missing) == 1:
        return f" ({_said(missing[0])})"
    return ": " + ", ".join(f"{step.first_offset} to {step.last_offset} ({_said(step)})" for step in missing)


def _said(step: BrokerRange) -> str:
    return f"{step.reason}: no segment has them" if step.reason == Reason.HOLE else str(step.reason)


def _hint(missing: Sequence[BrokerRange]) -> str:
    reason, *others = (str(step.reason) for step in missing)
    if reason == Reason.UNSTABLE and others == [Reason.HOLE]:
        what = "A transaction that is open where the hole begins may end in it"
        return f"{what}, and only a broker knows how: {SET_BROKERS}"
    return _HINTS.get(reason, ASK_A_BROKER)


_HINTS: dict[str, str] = {
    Reason.HOLE: GAP_HINT,
    Reason.UNSTABLE: f"A transaction may be open there, and only a broker knows how it ends: {SET_BROKERS}",
    Reason.NOT_TIERED: f"The tier ends before them, and only a broker has them: {SET_BROKERS}",
}


def no_other_copy(
    partition: TopicIdPartition, step: PlanStep, error: RemoteFetchError, *, may_be_gap: bool
) -> RemoteFetchError:
    """The error to raise if no other segment has the offsets of a step.

    For SegmentNotFound this is an Unlocatable error with the offsets; any other error is returned as it is.
    `may_be_gap`: no object is missing, but the segment ends before the next one begins. Compaction may be the cause.
    """
    if not isinstance(error, SegmentNotFound):
        return error
    return Unlocatable(
        f"no object holds offsets {step.first_offset} to {step.last_offset}: {error.message}",
        first=step.first_offset,
        last=step.last_offset,
        object_name=error.object_name,
        hint=GAP_HINT if may_be_gap else "They were deleted or never uploaded here; a broker may still have them",
        **partition.place,
    )


def original(error: RemoteFetchError) -> RemoteFetchError:
    """The error, or the SegmentNotFound of which `no_other_copy` made it: the kind of that one says more."""
    return error.__cause__ if isinstance(error.__cause__, SegmentNotFound) else error


def unexpected(error: BaseException) -> str:
    """The text for an unexpected exception: its type, its file and line, and what to do.

    The cause is a bug or a broken installation: a missing package, a package for another version, too little memory.
    """
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" in {place[0].filename}, line {place[0].lineno}" if place else ""
    return (
        f"{type(error).__module__}.{type(error).__qualname__}{where}: {error}. This is no error of the store: a "
        "fetcher or an installed package is broken. The same read with read_arrow raises it"
    )

"""The check whether metadata shows a hole in the tier. A listing shows none: only a read measures its segments."""

from __future__ import annotations

from remote_fetch.checks.check import Check, State, failed
from remote_fetch.checks.gain import Tier
from remote_fetch.errors import RemoteFetchError
from remote_fetch.plan.ranges import BrokerRange, Reason
from remote_fetch.prepare.refusals import refuse_broker_ranges

__all__ = ["holes_check"]

_NAME = "offsets"


def holes_check(tier: Tier, *, has_broker: bool) -> Check | None:
    """The first stretch of offsets that the tier should have and lacks, None if metadata shows none.

    Without brokers a read of such offsets fails, so the check fails with the error of that read. With brokers a hole is
    advice: the brokers have lost an object or its metadata, and give these records from a disk or not at all.
    """
    if has_broker:
        return _advice_about(tier)
    try:
        for plan in tier.plans:
            refuse_broker_ranges(plan.opened.timeline, plan.steps)
    except RemoteFetchError as error:
        return failed(_NAME, None, error)
    return None


def _advice_about(tier: Tier) -> Check | None:
    holes = [
        step
        for plan in tier.plans
        for step in plan.steps
        if isinstance(step, BrokerRange) and step.reason == Reason.HOLE
    ]
    if not holes:
        return None
    first, others = holes[0], f", and {len(holes) - 1} more holes are in the tier" if len(holes) > 1 else ""
    topic, number = first.partition.topic, first.partition.partition
    text = f"no segment has offsets {first.first_offset} to {first.last_offset} of {topic}-{number}"
    return Check(
        _NAME, State.ADVICE, f"{text}{others}: only a broker can give them",
        f"remote-fetch audit -t {topic} tells what is missing",
    )  # fmt: skip

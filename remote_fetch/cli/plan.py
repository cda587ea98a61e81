"""`remote-fetch plan`: print the segments, byte ranges, GETs and bytes that a read would fetch.

Rules of the file:

- Only indexes are fetched.
- The printed plan is the plan that `cat` runs with the same options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from remote_fetch.amounts import counted, human_bytes, per_get
from remote_fetch.cli.bounds import plans_from
from remote_fetch.cli.chart import Chart, chart_of
from remote_fetch.cli.chart_option import ON_TERMINAL, add_chart_option, check_chart_option, draw_chart
from remote_fetch.cli.options import add_common_options, add_json_option, add_range_options, config_from
from remote_fetch.cli.report import Warnings
from remote_fetch.errors import Unlocatable
from remote_fetch.plan.cost import PlanCost, StoredSize, estimate, untold
from remote_fetch.plan.prices import Prices
from remote_fetch.plan.ranges import BrokerRange, PlanStep, SegmentSlice
from remote_fetch.plan.saved import dump_plan
from remote_fetch.prepare.refusals import refuse_broker_ranges
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.session.price_table import open_prices
from remote_fetch.session.session import Session

__all__ = ["add_options", "print_plan", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add_range_options(parser, topic_required=True, several=True)
    add_common_options(parser)
    add_json_option(parser, "with the plan, to save or compare")
    add_chart_option(parser)
    parser.add_argument(
        "--custom-metadata",
        action="store_true",
        help="with -J: print the segments' custom metadata too, which may be signed URLs",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    warnings = Warnings()
    check_chart_option(arguments)
    with Session.open(config_from(arguments), warnings) as session:
        plans = plans_from(arguments, session)
        if arguments.chart is not None:
            draw_chart(arguments.chart, _chart(plans), f"A read of {', '.join(arguments.topics)}")
        if arguments.json:
            _print_json([step for plan in plans for step in plan.steps], arguments.custom_metadata, session.stored_size)
        else:
            prices = open_prices(session.config.settings)
            shows_steps = arguments.chart != ON_TERMINAL
            print_plan(plans, session.reader.range_bytes, session.stored_size, prices, shows_steps=shows_steps)
        if session.brokers is None:
            _print_refusal(plans)
    warnings.print()
    return 0


def _chart(plans: Sequence[PartitionPlan]) -> Chart:
    """The segments of the partitions. Those that the plans read are marked."""
    read = {step.segment.segment_id for plan in plans for step in plan.steps if isinstance(step, SegmentSlice)}
    return chart_of((plan.opened.timeline.segments for plan in plans), read)


def _print_json(steps: Sequence[PlanStep], with_custom_metadata: bool, stored_size: StoredSize) -> None:
    """Print the plan in the form that `load_plan` reads, with custom metadata only on request."""
    shown = list(steps) if with_custom_metadata else [_without_custom_metadata(step) for step in steps]
    told = {step.segment.segment_id: stored_size(step.segment) for step in steps if isinstance(step, SegmentSlice)}
    sys.stdout.write(dump_plan(shown, lambda segment: told[segment.segment_id]))
    if shown != list(steps):
        sys.stdout.flush()
        print("% left out: custom metadata, which may be signed URLs; --custom-metadata prints them", file=sys.stderr)


def _without_custom_metadata(step: PlanStep) -> PlanStep:
    if isinstance(step, BrokerRange):
        return step
    return replace(step, segment=replace(step.segment, custom_metadata=None))


def _print_refusal(plans: Sequence[PartitionPlan]) -> None:
    """Print the error that a read would raise, if the plan needs a broker and none is configured."""
    try:
        for plan in plans:
            refuse_broker_ranges(plan.opened.timeline, plan.steps)
    except Unlocatable as error:
        sys.stdout.flush()
        print(f"% to be refused: {error}", file=sys.stderr)


def print_plan(
    plans: Sequence[PartitionPlan],
    range_bytes: int,
    stored_size: StoredSize = untold,
    prices: Prices | None = None,
    *,
    shows_steps: bool = True,
) -> None:
    """Print the plans, with their steps, and their total cost, with `prices` in money too."""
    for plan in plans:
        partition = plan.opened.partition
        print(f"{partition.topic_partition}: {_cost(estimate([plan.steps], range_bytes, stored_size))}")
        for step in plan.steps if shows_steps else ():
            print(f"  {step}")
    total = estimate([[step for plan in plans for step in plan.steps]], range_bytes, stored_size)
    print(f"total: {_cost(total)}{per_get(total.mean_bytes_per_get)}")
    if prices is not None:
        size_bytes = total.size_bytes if total.stored_bytes is None else total.stored_bytes
        print(f"cost: {prices.text(total.gets, size_bytes)}")


def _cost(cost: PlanCost) -> str:
    text = f"{counted(cost.segments, 'segment')}, {counted(cost.gets, 'GET')}, {human_bytes(cost.size_bytes)}"
    if cost.stored_bytes is not None:
        text += f" (about {human_bytes(cost.stored_bytes)} in the store)"
    if cost.broker_offsets:
        text += f", {counted(cost.broker_offsets, 'offset')} from the broker"
    if cost.unknown_slices:
        text += f", {counted(cost.unknown_slices, 'slice')} of unknown size"
    return text

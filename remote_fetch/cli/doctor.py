"""`remote-fetch doctor`: find out why a set-up does not work, and tell how much a reader gains.

Rules of the file:

- stdout has a line for each check, the gain, and the configuration to copy. It fits on a screen.
- Secrets are masked.
- The exit code is 0 if no check failed, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterator
from typing import Any

from remote_fetch.amounts import human_bytes, human_time
from remote_fetch.checks.check import State
from remote_fetch.checks.doctor import Doctor
from remote_fetch.checks.gain import Gain, Tier
from remote_fetch.cli.bounds import isolation_of
from remote_fetch.cli.check_lines import check_as_json, print_check
from remote_fetch.cli.color import add_color_option, paint_from
from remote_fetch.cli.masked import masked
from remote_fetch.cli.options import Once, add_common_options, add_json_option, config_from
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.plan.prices import Prices
from remote_fetch.session.price_table import open_prices

__all__ = ["add_options", "run"]

_SAMPLE_BYTES = 64 << 20
_ENOUGH_BYTES = 1 << 20
"""Below this, the first answers of brokers and store take longer than the records."""
_CONFIGURATION = "configuration of read_arrow, RemoteConsumer and Spark, and of -F FILE"
_UNFINISHED = "configuration so far, with which nothing could be read"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "-t", dest="topic", metavar="TOPIC", action=Once, help="the topic (default: the first that is in the tier)"
    )
    parser.add_argument("--isolation", metavar="LEVEL", help="read_committed (default) or read_uncommitted")
    parser.add_argument(
        "--sample-bytes", type=int, default=_SAMPLE_BYTES, metavar="N",
        help="read about so many bytes of the tier each way (64 MiB)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="choose the same sample as another run with this seed")
    add_json_option(parser, "a check, then one of the gain and one of the configuration")
    add_color_option(parser)
    add_common_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    if arguments.sample_bytes < 1:
        raise ConfigError(f"--sample-bytes {arguments.sample_bytes}: give a number above 0", key="--sample-bytes")
    configs = config_from(arguments)
    prices = open_prices(Config.parse(configs).settings)
    doctor = Doctor(
        configs,
        arguments.topic,
        isolation=isolation_of(arguments, configs),
        sample_bytes=arguments.sample_bytes,
        dice=random.Random(arguments.seed),
    )
    paint = paint_from(arguments)
    has_failed = False
    for check in doctor.checks():
        has_failed = has_failed or check.state is State.FAILED
        if arguments.json:
            print(check_as_json(check), flush=True)
        else:
            print_check(check, paint)
    shown = {name: masked(name, _anywhere(name, value)) for name, value in doctor.configs.items()}
    shown |= {"fetch.remote.enabled": "true"}
    if arguments.json:
        print(json.dumps({"gain": _gain_as_json(doctor)}))
        print(json.dumps({"configuration": shown}))
    else:
        for line in _lines(doctor, prices):
            print(line)
        print(f"\n{_UNFINISHED if has_failed and not doctor.can_read else _CONFIGURATION}:")
        for name, value in shown.items():
            print(f"  {name}={value}")
    return 1 if has_failed else 0


def _anywhere(name: str, value: Any) -> Any:
    """A directory by its whole path, so that the configuration is right in every directory."""
    is_directory = name == "remote.storage.url" and "://" not in str(value)
    return os.path.abspath(str(value)) if is_directory else value


def _lines(doctor: Doctor, prices: Prices | None) -> Iterator[str]:
    tier, gain = doctor.tier, doctor.gain
    if tier is None or not tier.offsets:
        return
    cost = tier.cost
    yield ""
    size = f"{human_bytes(cost.size_bytes)}, segments: {cost.segments}, partitions: {len(tier.plans)}"
    yield f"{doctor.topic}: {size}{_shares(tier)}"
    if gain is None:
        return
    speeds = gain.store.flowing_per_s, gain.broker.flowing_per_s
    if gain.store.size_bytes < _ENOUGH_BYTES or speeds[0] is None or speeds[1] is None:
        yield f"  The sample has {human_bytes(gain.store.size_bytes)} of keys and values: too few to tell speeds."
        return
    money = "" if prices is None else f", {prices.text(cost.gets, cost.size_bytes)}"
    records = _records_of(tier, gain)
    for way, per_s, load in (
        ("store", speeds[0], f"{cost.gets} GETs{money}"),
        ("brokers", speeds[1], f"{human_bytes(cost.size_bytes)} through the brokers"),
    ):
        yield f"  {way:8}{per_s:12,.0f} records/s   all of it in {human_time(records / per_s)}   {load}"
    ratio = speeds[0] / speeds[1]
    yield f"  As Arrow, in one process on this machine, the store is {ratio:.1f} times as fast as the brokers."


def _records_of(tier: Tier, gain: Gain) -> float:
    """About how many records are in the tier, by those of the sample."""
    return tier.offsets * gain.store.records / max(gain.offsets, 1)


def _shares(tier: Tier) -> str:
    """The shares of the log that are in the tier. Without brokers the log's end is unknown."""
    if not tier.is_end_known:
        return ""
    in_tier = f"; {_share(tier.offsets, tier.offsets_of_log)} of the log's offsets are in the tier"
    if tier.only_tiered is None:
        return in_tier
    return f"{in_tier}, {_share(tier.only_tiered, tier.offsets_of_log)} on no broker's disk"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def _gain_as_json(doctor: Doctor) -> dict[str, Any] | None:
    tier, gain = doctor.tier, doctor.gain
    if tier is None:
        return None
    found: dict[str, Any] = {
        "topic": doctor.topic, "partitions": len(tier.plans), "segments": tier.cost.segments,
        "size_bytes": tier.cost.size_bytes, "gets": tier.cost.gets, "offsets": tier.offsets,
        "offsets_of_log": tier.offsets_of_log, "only_tiered": tier.only_tiered,
    }  # fmt: skip
    if gain is not None:
        for way, rate in (("store", gain.store), ("brokers", gain.broker)):
            per_s = rate.flowing_per_s
            whole_s = None if per_s is None else _records_of(tier, gain) / per_s
            found[way] = {"records": rate.records, "records_per_s": per_s, "whole_s": whole_s}
    return found

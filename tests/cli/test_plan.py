"""`plan`: the fetches of a read, without reading."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fetchers.layouts.aiven import AivenLayout
from remote_fetch.cli.plan import _print_json, print_plan
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import (
    UNKNOWN_SIZE,
    IsolationLevel,
    LogBounds,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.plan.cost import untold
from remote_fetch.plan.ranges import BrokerRange, Reason, SegmentSlice
from remote_fetch.plan.saved import load_plan
from remote_fetch.prepare.view import OpenPartition, PartitionPlan
from tests.golden.conftest import AivenTier
from tests.scan.bucket import snapshot_config
from tests.scan.sparse import SparseTier

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_steps_and_costs(run: Run, bucket: str) -> None:
    outcome = run("plan", "--url", bucket, "-t", "shop")
    assert (outcome.code, outcome.stderr) == (0, "")
    sizes = [path.stat().st_size for path in Path(bucket).rglob("shop-0-*/*.log")]
    first, *steps = outcome.lines[:4]
    assert first == f"shop-0: 3 segments, 3 GETs, {sum(sizes)} B"
    assert [step.split(" from ")[0] for step in steps] == ["  offsets 0..2", "  offsets 3..5", "  offsets 6..8"]
    assert all(step.endswith("bytes 0..end") for step in steps)
    assert outcome.lines[4].startswith("shop-1: 1 segment, 1 GET, ")
    assert outcome.lines[-1].startswith("total: 4 segments, 4 GETs, ")
    assert outcome.lines[-1].endswith(" per GET")


def test_bounds_and_log_start_narrow_it(run: Run, bucket: str) -> None:
    outcome = run("plan", "--url", bucket, "-t", "shop", "-p", "0", "--log-start", "4", "--end", "8")
    assert [line.split(" from ")[0] for line in outcome.lines[1:-1]] == ["  offsets 4..5", "  offsets 6..7"]


def test_a_size_that_metadata_cannot_hold_is_asked_of_the_store(run: Run, tmp_path: Path) -> None:
    """Metadata clamps a size of 8 GiB to one byte less than 2 GiB (KIP-1333). The store gives the true size."""
    sparse = SparseTier(tmp_path, 8 << 30)
    saved = [word for name, value in sparse.clamped(tmp_path).items() for word in ("-X", f"{name}={value}")]
    outcome = run("plan", "--url", str(tmp_path), "-t", "topic", "-o", "1000", *saved)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.lines[0] == "topic-0: 1 segment, 1027 GETs, 8.0 GiB"
    assert "of unknown size" not in outcome.stdout.decode()
    whole = run("plan", "--url", str(tmp_path), "-t", "topic", "-o", "1000", *saved, "-J")
    (step,) = load_plan(whole.stdout.decode())
    assert isinstance(step, SegmentSlice)
    assert step.size_bytes == 8 << 30


def test_bytes_in_the_store(run: Run, tmp_path: Path) -> None:
    """The plan shows Aiven's REMOTE_SIZE (KIP-917) in the totals, and for each segment in the JSON."""
    tier = AivenTier("aiven-zstd")
    segments = [one for each in tier.timelines.values() for one in each.segments]
    topic = segments[0].topic_id_partition.topic
    stored = {AivenLayout().stored_size(one) for one in segments}
    configs = {**tier.config, **snapshot_config(segments, tmp_path)}
    saved = [word for name, value in configs.items() for word in ("-X", f"{name}={value}")]
    outcome = run("plan", "-t", topic, *saved)
    assert outcome.code == 0
    assert re.search(r" GETs, [0-9.]+ [KMi]*B \(about [0-9.]+ [KMi]*B in the store\), mean", outcome.lines[-1])
    steps = json.loads(run("plan", "-t", topic, *saved, "-J").stdout)["steps"]
    told = {step["segment"]["stored_bytes"] for step in steps if "segment" in step}
    assert told
    assert told <= stored


def test_a_read_of_nothing(run: Run, bucket: str) -> None:
    outcome = run("plan", "--url", bucket, "-t", "shop", "-p", "0", "-o", "end")
    assert outcome.lines == ["shop-0: 0 segments, 0 GETs, 0 B", "total: 0 segments, 0 GETs, 0 B"]


def test_json_is_a_saved_plan(run: Run, bucket: str) -> None:
    outcome = run("plan", "--url", bucket, "-t", "shop", "-J")
    steps = load_plan(outcome.stdout.decode("utf-8"))
    assert [(step.first_offset, step.last_offset) for step in steps] == [(0, 2), (3, 5), (6, 8), (0, 1)]


@pytest.mark.parametrize("more", [(), ("-J",)])
def test_the_plan_shows_that_cat_will_refuse(run: Run, bucket: str, more: tuple[str, ...]) -> None:
    wanted = ("--url", bucket, "-t", "shop", "-p", "0", "--end", "20")
    planned, read = run("plan", *wanted, *more), run("cat", *wanted, "-q")
    assert (planned.code, read.code) == (0, 1)
    (refusal,) = read.stderr.splitlines()
    assert "offsets 9 to 19" in refusal
    assert planned.stderr.splitlines() == [refusal.replace("remote-fetch:", "% to be refused:")]


def test_the_plan_names_offsets_that_the_bucket_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    partition = TopicIdPartition(Uuid(bytes(16)), "shop", 0)
    segment = RemoteLogSegmentMetadata(RemoteLogSegmentId(partition, Uuid(bytes(16))), 0, 9, UNKNOWN_SIZE)
    steps = (SegmentSlice(segment, 0, 9), BrokerRange(partition, 10, 14, Reason.NOT_TIERED))
    timeline = Timeline(partition, (segment,), (0,))
    opened = OpenPartition(timeline, Lineage.unknown(), IsolationLevel.READ_UNCOMMITTED, 0, 10, 10, LogBounds())
    print_plan([PartitionPlan(opened, steps, None)], 1024)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "shop-0: 1 segment, 0 GETs, 0 B, 5 offsets from the broker, 1 slice of unknown size"
    assert lines[2] == "  offsets 10..14 from the broker (not-tiered)"


def test_custom_metadata_are_left_out_unless_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """They may be signed URLs."""
    partition = TopicIdPartition(Uuid(bytes(16)), "t", 0)
    segment = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid(bytes(16))), 0, 9, 100, custom_metadata=b"https://x/?signature=s3cret"
    )
    piece, rest = SegmentSlice(segment, 0, 9), BrokerRange(partition, 10, 19, Reason.NOT_TIERED)
    _print_json([piece, rest], with_custom_metadata=False, stored_size=untold)
    shown = capsys.readouterr()
    loaded = load_plan(shown.out)
    assert loaded == (replace(piece, segment=replace(segment, custom_metadata=None)), rest)
    assert "--custom-metadata" in shown.err
    _print_json([piece, rest], with_custom_metadata=True, stored_size=untold)
    shown = capsys.readouterr()
    assert (load_plan(shown.out), shown.err) == ((piece, rest), "")


def test_the_cost_by_a_table_of_prices(run: Run, bucket: str, tmp_path: Path) -> None:
    """`plan` tells it before, and `cat` after."""
    file = tmp_path / "prices.toml"
    prices = "gets_1000 = 1000\ngb_same_region = 0\ngb_to_internet = 1000"
    file.write_text(f"[file]\n{prices}\n", encoding="utf-8")
    priced = ("--url", bucket, "-t", "shop", "-X", f"remote.storage.prices={file}")
    total, cost = run("plan", *priced).lines[-2:]
    gets = int(total.split(" segments, ")[1].split(" GETs")[0])
    assert cost.startswith(f"cost: about ${1000 * gets / 1000:.2f} in the store's region, $")
    assert "% cost: about $" in run("cat", *priced, "-e").stderr
    assert "cost:" not in run("plan", "--url", bucket, "-t", "shop").stdout.decode()

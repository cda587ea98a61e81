"""The recordings are complete, undamaged, and of the versions that their names tell."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.golden.conftest import Tier

pytestmark = pytest.mark.each_version

TREE = "kafka-tiered-storage"
PRODUCER_SNAPSHOT = ".snapshot"


def uploads(tier: Tier) -> dict[tuple[str, int, str], list[Path]]:
    """The objects of each file that a broker had: a segment uploaded twice has two."""
    found: dict[tuple[str, int, str], list[Path]] = {}
    ends = {
        (partition.topic, partition.partition, segment.start_offset): segment.end_offset
        for partition, timeline in tier.timelines.items()
        for segment in timeline.segments
    }
    for path in (Path(tier.url) / TREE).glob("*/*"):
        topic, _, number = path.parent.name[:-23].rpartition("-")
        offset = path.name[:20]
        if path.suffix == PRODUCER_SNAPSHOT:  # the state at the end of a segment has the next one's name on the broker
            offset = f"{ends[topic, int(number), int(offset)] + 1:020d}"
        if path.suffix != ".leader_epoch_checkpoint":  # the broker keeps one file for the whole partition
            found.setdefault((topic, int(number), offset + path.suffix), []).append(path)
    return found


def test_every_object_is_the_file_the_broker_had(tier: Tier) -> None:
    originals = {(line["topic"], line["partition"], line["file"]): line for line in tier.lines("original_files")}
    compared = 0
    for name, paths in uploads(tier).items():
        for path in paths:
            data = path.read_bytes()
            original = originals[name]
            assert (len(data), hashlib.sha256(data).hexdigest()) == (original["size"], original["sha256"]), name
            compared += 1
    assert compared > 300


def test_the_recordings_are_complete(tier: Tier) -> None:
    counts = tier.facts["counts"]
    for isolation in ("read_uncommitted", "read_committed"):
        recorded = sum(len(lines) for (level, *_), lines in tier.recorded.items() if level == isolation)
        tiered = sum(len(place.recorded(isolation)) for place in tier.places)
        assert recorded == counts[isolation]
        assert tiered == recorded - 10, "only the last ten records of topic tail are not in the tier"
    assert len(tier.lines("metadata")) == counts["metadata"]
    assert len(tier.lines("aborted")) == counts["aborted_transactions"]
    assert len(tier.places) == 23

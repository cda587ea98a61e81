"""The metadata partition of a user partition, compared with answers of the brokers' partitioner."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest

from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.formats.metadata_records import SegmentMetadataRecord, SegmentUpdateRecord, parse_metadata_record
from remote_fetch.model import Uuid

VECTORS = json.loads(Path(__file__).with_name("metadata_records_vectors.json").read_text())["partitioner"]
GOLDENS = Path(__file__).parents[1] / "golden" / "data"
ORDERS = Uuid.parse("MWJ6FHTfRYy67jzwZdeqSQ")


def test_vectors() -> None:
    assert len(VECTORS) > 40
    for vector in VECTORS:
        found = metadata_partition(Uuid.parse(vector["topic_id"]), vector["partition"], vector["num"])
        assert found == vector["expect"], vector


@pytest.mark.parametrize(("partition", "expected"), [(0, 42), (1, 45), (7, 26)])
def test_fifty_partitions(partition: int, expected: int) -> None:
    assert metadata_partition(ORDERS, partition, 50) == expected


@pytest.mark.parametrize("name", ["local-3.9", "local-4.1"])
def test_brokers_wrote_there(name: str) -> None:
    settings = json.loads((GOLDENS / name / "set.json").read_text())["broker_properties"]
    count = int(settings["rlmm.config.remote.log.metadata.topic.num.partitions"])
    with gzip.open(GOLDENS / name / "metadata.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    assert len({record["partition"] for record in records}) > 1
    for record in records:
        parsed = parse_metadata_record(base64.b64decode(record["value"]))
        assert isinstance(parsed, SegmentMetadataRecord | SegmentUpdateRecord)
        segment_id = parsed.metadata.segment_id if isinstance(parsed, SegmentMetadataRecord) else parsed.segment_id
        user = segment_id.topic_id_partition
        assert metadata_partition(user.topic_id, user.partition, count) == record["partition"]


@pytest.mark.parametrize("count", [0, -1])
def test_a_topic_has_partitions(count: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        metadata_partition(ORDERS, 0, count)

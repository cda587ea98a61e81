"""`grep` for exact keys in a topic that real producers wrote with each partitioner, and how much of it is read."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from remote_fetch.cli import main
from tests.cases import of_a_change
from tests.rig import topics
from tests.rig.rig import Rig

PARTITIONS, KEYS = 8, 60


@pytest.mark.parametrize(
    ("partitioner", "ours"),
    of_a_change(
        [("murmur2", "murmur2"), ("consistent", "consistent"), ("consistent_random", "consistent")],
        ("murmur2", "murmur2"),
        ("consistent_random", "consistent"),
    ),
)
def test_a_key_is_in_the_partition_of_its_partitioner(
    rig_43: Rig, new_topic: Callable[[str], str], capfd: pytest.CaptureFixture[str], partitioner: str, ours: str
) -> None:
    topic = new_topic("grep")
    topics.create_topic(rig_43, topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": rig_43.bootstrap, "partitioner": partitioner, **topics.QUIET})
    keys = [b"key-%d" % number for number in range(KEYS)] + ["schlüssel".encode(), b"\xff\x00\x01"[:1], b""]
    for number, key in enumerate(keys * 3):
        producer.produce(topic, b"%d" % number, key)
    assert producer.flush(30) == 0
    common = [
        "grep",
        "-b",
        rig_43.bootstrap,
        "--url",
        str(rig_43.remote),
        "-t",
        topic,
        "-X",
        "log_level=0",
        "-f",
        r"%s\n",
    ]
    for at in (0, 7, 23, KEYS, len(keys) - 1):
        outcomes = []
        for more in ([], ["--partitioner", ours]):
            assert main([*common, "-k", keys[at].decode(), *more]) == 0
            captured = capfd.readouterr()
            outcomes.append(sorted(captured.out.split()))
            records = re.search(r"% (\d+) records in", captured.err)
            assert records is not None
            reads_all = not more or (not keys[at] and ours == "consistent")
            assert (int(records[1]) == len(keys) * 3) is reads_all
        assert outcomes == [sorted(str(at + len(keys) * turn) for turn in range(3))] * 2

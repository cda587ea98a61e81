"""Brokers send a RemoteConsumer no record that the store gives, by the brokers' own counters.

Rules of the file:

- The broker's counters are read before and after. A client's counters are no proof, because librdkafka does not count a
  reply that it drops.
- Everything is read to the end, after every kind of assignment. A reading of the counters starts a JVM, so that one
  pair of readings is for all kinds.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from remote_fetch import RemoteConsumer
from tests.rig import topics
from tests.rig.metrics import topic_metrics
from tests.rig.rig import VERSIONS, Rig
from tests.rig.test_read import ISOLATION_OF_A_CHANGE, config_of
from tests.rig.topics import OracleRecord
from tests.rig.transactions import interleaved_transactions

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
_DEADLINE_S = 180

NEW_PROTOCOL = "KIP-848"
PROTOCOLS: dict[str, dict[str, Any]] = {
    "assigned": {},
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    NEW_PROTOCOL: {"group.protocol": "consumer"},
}
_WANTS_4_0 = pytest.mark.skipif(int(VERSIONS[0].split(".")[0]) < 4, reason=f"{NEW_PROTOCOL} wants Kafka 4.0 or later")
OF_GROUPS = ("eager", "cooperative", pytest.param(NEW_PROTOCOL, marks=_WANTS_4_0))
"""The protocols of consumers that subscribe, for tests on `rig_43`."""


@pytest.fixture(scope="module")
def tiered() -> Callable[[Rig], str]:
    """Makes this module's topic on a rig: committed and aborted transactions, all of them only in the tier."""
    made: dict[Rig, str] = {}

    def topic_of(rig: Rig) -> str:
        if rig not in made:
            topics.create_topic(rig, "traffic", PARTITIONS)
            for partition in range(PARTITIONS):
                topics.produce(rig, "traffic", 60, partition=partition, sizes=(300, 700))
                interleaved_transactions(rig, "traffic", (True, False), partition=partition, rounds=3)
            topics.wait_tiered(rig, "traffic", range(PARTITIONS))
            made[rig] = "traffic"
        return made[rig]

    return topic_of


def read_all(config: dict[str, Any], topic: str, protocol: str, ends: list[int]) -> list[OracleRecord]:
    records: list[OracleRecord] = []
    with RemoteConsumer({**config, **PROTOCOLS[protocol]}) as consumer:
        if protocol == "assigned":
            consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        else:
            consumer.subscribe([topic])
        deadline = time.monotonic() + _DEADLINE_S
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        while [one.offset for one in consumer.position(wanted)] != ends:
            assert time.monotonic() < deadline, consumer.remote_metrics()
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                records.append(topics.oracle_record(message))
        assert consumer.remote_metrics()["broker-records-total"] == 0
    return sorted(records, key=lambda one: (one.partition, one.offset))


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_the_broker_sends_nothing_of_what_is_tiered(rig: Rig, tiered: Callable[[Rig], str], isolation: str) -> None:
    """Kafka 3.9 has the new protocol of groups only as a preview."""
    topic = tiered(rig)
    protocols = [name for name in PROTOCOLS if name != NEW_PROTOCOL or rig.is_at_least(4)]
    expected = [one for number in range(PARTITIONS) for one in topics.broker_records(rig, topic, number, isolation)]
    ends = [topics.offsets(rig, topic, number).latest for number in range(PARTITIONS)]
    config = {
        **config_of(rig),
        "auto.offset.reset": "earliest",
        "isolation.level": isolation,
        "fetch.remote.enabled": True,
    }
    before = topic_metrics(rig, topic)
    for protocol in protocols:
        group = {"group.id": f"traffic-{protocol}-{isolation}"}
        assert read_all({**config, **group}, topic, protocol, ends) == expected, protocol
    sent = topic_metrics(rig, topic) - before
    assert (sent.bytes_out, sent.remote_fetch_bytes, sent.remote_fetch_requests) == (0, 0, 0)


def test_the_example(rig_43: Rig, tiered: Callable[[Rig], str], tmp_path: Path) -> None:
    """The example reads the topic, and prints which records came from where."""
    topic = tiered(rig_43)
    expected = [topics.broker_records(rig_43, topic, number, "read_committed") for number in range(PARTITIONS)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "04_remote_consumer.py"), rig_43.bootstrap, str(rig_43.remote), topic],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{sum(map(len, expected))} records, 0 of them through the broker" in done.stdout
    assert " GETs for " in done.stdout

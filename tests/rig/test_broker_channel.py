"""Real brokers answer about their own disks, without and with a password. Missing answers have a reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from remote_fetch.locate.broker_channel import BrokerChannel
from remote_fetch.model import TopicIdPartition, Uuid
from tests.rig import topics
from tests.rig.rig import VERSIONS, Rig, single

TIMEOUT_MS = 20_000


def partition(topic: str, number: int = 0) -> TopicIdPartition:
    return TopicIdPartition(Uuid(bytes(16)), topic, number)


@contextmanager
def channel_to(properties: dict[str, Any], said: list[str], timeout_ms: int = TIMEOUT_MS) -> Iterator[BrokerChannel]:
    channel = BrokerChannel(properties, timeout_ms=timeout_ms, say=said.append)
    try:
        yield channel
    finally:
        channel.close()


def oracle(rig: Rig, topic: str, number: int = 0) -> topics.Offsets:
    return topics.offsets(rig, topic, number)


@pytest.mark.slow
def test_where_the_local_log_begins(rig: Rig) -> None:
    said: list[str] = []
    gone, kept, plain, absent = "channel-gone", "channel-kept", "channel-plain", "channel-absent"
    topics.create_topic(rig, gone, 2)
    topics.create_topic(rig, kept, local_retention_ms=-1)
    topics.create_topic(rig, plain, remote_storage_enable="false")
    for topic in (gone, kept, plain):
        topics.produce(rig, topic, 200)
    topics.wait_tiered(rig, gone)
    rig.until("something of the kept topic tiered", lambda: oracle(rig, kept).latest_tiered > 0)
    with channel_to({"bootstrap.servers": rig.bootstrap}, said) as channel:
        wanted = [partition(gone), partition(gone, 1), partition(plain), partition(absent), partition(gone, 2)]
        assert channel.local_starts(wanted) == {partition(gone): 200, partition(gone, 1): 0, partition(plain): 0}
        (of_absent,) = said
        assert "UnknownTopicOrPartition" in of_absent
        assert channel.local_starts([partition(kept)]) == {partition(kept): 0}


@pytest.mark.slow
def test_a_tier_whose_records_are_deleted(rig: Rig) -> None:
    topic = "channel-deleted"
    topics.make_tiered(rig, topic, 200)
    topics.set_config(rig, topic, local_retention_ms=-2)
    tiered = oracle(rig, topic).latest_tiered
    topics.produce(rig, topic, 3, seed=1, sizes=(4,))  # too few to close a segment: they stay local
    topics.delete_records(rig, topic, 0, 202)
    said: list[str] = []
    with channel_to({"bootstrap.servers": rig.bootstrap}, said) as channel:
        found = channel.local_starts([partition(topic)])
    assert tiered == 199
    assert found == {partition(topic): 202}
    assert said == []


def allow_describe(rig: Rig, user: str, topic: str) -> None:
    allowed = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    client = topics.admin(rig)
    for future in client.create_acls([allowed]).values():
        future.result(TIMEOUT_MS / 1000)


@pytest.mark.slow
@pytest.mark.scheduled
@pytest.mark.parametrize("version", VERSIONS)
def test_with_a_password(needs_broker: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str) -> None:
    caplog.set_level(logging.DEBUG, "kafka")
    with single(tmp_path, version, access_control=True) as rig:
        for topic in ("allowed", "denied"):
            topics.create_topic(rig, topic)
            topics.produce(rig, topic, 100)
        topics.wait_tiered(rig, "allowed")
        allow_describe(rig, "reader", "allowed")
        properties = rig.sasl_client("reader")
        said: list[str] = []
        with channel_to(properties, said) as channel:
            assert channel.local_starts([partition("allowed"), partition("denied")]) == {partition("allowed"): 100}
        (of_denied,) = said
        assert "[denied-0]" in of_denied
        said.clear()
        wrong = {**properties, "sasl.password": "another-secret"}
        with channel_to(wrong, said, timeout_ms=2000) as channel:
            assert channel.local_starts([partition("allowed")]) == {}
        assert len(said) == 1
    assert "SaslHandshake" not in caplog.text
    for secret in (properties["sasl.password"], "another-secret"):
        assert secret not in caplog.text + of_denied + "".join(said)

"""Checks of a cluster: whether brokers answer, and whether a topic is tiered and may be read by this principal.

Rules of the file:

- Nothing is written. No group is joined.
- A refusal becomes a failed check with the command that grants the permission.
- Settings that this principal may not see are no failure: reading does not need them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import KafkaException

from remote_fetch.checks.check import Check, State, tried
from remote_fetch.errors import UnknownTopic
from remote_fetch.failures.broker_errors import broker_says, is_refusal
from remote_fetch.fetch.broker_file import STORAGE_MANAGER, layout_of
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.described import described_topic
from remote_fetch.session.property_check import check_properties

__all__ = ["Found", "brokers_check", "grant", "layout_of_brokers", "topic_checks"]

_IS_TIERED = "remote.storage.enable"
_SINCE_3_9 = "remote.log.copy.disable"
"""A setting of a topic that Kafka 3.9 introduced (KIP-950)."""
_OLD = (
    "the brokers are older than Kafka 3.6, which introduced tiered storage",
    "Nothing of this topic can be in a tier. Upgrade the brokers, or read with confluent_kafka",
)


class Found(NamedTuple):
    """The result of checks of a topic: whether it can be read from a tier, and its settings, None if not to be seen."""

    is_readable: bool
    settings: Mapping[str, str] | None = None


_Checks: TypeAlias = Generator[Check, None, Found]


def brokers_check(cluster: Cluster) -> tuple[Check, bool]:
    """Whether brokers answer, how many there are, and the id of their cluster."""

    def ask() -> tuple[str, bool]:
        check_properties(cluster.properties)
        brokers = cluster.metadata().brokers
        return f"{len(brokers)} of cluster {cluster.cluster_id() or 'without id'}", True

    check, is_reached = tried("brokers", None, ask)
    return check, bool(is_reached)


def layout_of_brokers(cluster: Cluster) -> tuple[str | None, str | None]:
    """The storage plug-in of the brokers, and the layout of its objects. None if they are unknown or cannot be seen."""
    try:
        manager = cluster.broker_settings().get(STORAGE_MANAGER)
    except KafkaException:
        return None, None
    return (manager, layout_of(manager)) if manager else (None, None)


def topic_checks(cluster: Cluster, topic: str, properties: Mapping[str, Any]) -> _Checks:
    """The checks of a topic. Returns their result. `properties` are librdkafka's: they name the principal."""
    name = topic.partition(":")[0]
    try:
        described = described_topic(cluster, name)
    except UnknownTopic as error:
        yield Check("topic", State.FAILED, error.message, error.hint)
        return Found(is_readable=False)
    except KafkaException as error:
        hint = grant(properties, name, "Describe", "Read") if is_refusal(error) else None
        yield Check("topic", State.FAILED, broker_says(error), hint)
        return Found(is_readable=False)
    if described.topic_id is None:
        yield Check("topic", State.FAILED, *_OLD)
        return Found(is_readable=False)
    if not described.may_read:
        hint = grant(properties, name, "Read")
        yield Check("topic", State.FAILED, "this principal may not read the topic (READ)", hint)
        return Found(is_readable=False)
    yield Check("topic", State.OK, f"{name}, which this principal may read; partitions: {len(described.partitions)}")
    return (yield from _settings_checks(cluster, name, properties))


def _settings_checks(cluster: Cluster, name: str, properties: Mapping[str, Any]) -> _Checks:
    try:
        settings = cluster.topic_settings(name)
    except KafkaException as error:
        hint = grant(properties, name, "DescribeConfigs") if is_refusal(error) else None
        yield Check("settings", State.SKIPPED, f"not seen: {broker_says(error)}", hint)
        return Found(is_readable=True)
    if _IS_TIERED not in settings:
        yield Check("settings", State.FAILED, *_OLD)
        return Found(is_readable=False)
    if settings[_IS_TIERED] != "true":
        hint = (
            f"kafka-configs.sh --bootstrap-server {_servers(properties)} --alter --entity-type topics "
            f"--entity-name {name} --add-config {_IS_TIERED}=true (the brokers need "
            "remote.log.storage.system.enable=true)"
        )
        yield Check("settings", State.FAILED, f"the topic is not tiered: {_IS_TIERED}={settings[_IS_TIERED]}", hint)
        return Found(is_readable=False)
    if _SINCE_3_9 not in settings:
        text = "Kafka before 3.9.1 may show records of aborted transactions under read_committed (KAFKA-17801)"
        hint = "Upgrade to 3.9.1 or later. A read from the store leaves these records out"
        yield Check("settings", State.ADVICE, text, hint)
    else:
        yield Check("settings", State.OK, f"{_IS_TIERED}=true")
    return Found(is_readable=True, settings=settings)


def grant(properties: Mapping[str, Any], topic: str, *operations: str) -> str:
    """The command that grants operations on a topic to the principal of a client."""
    user = properties.get("sasl.username", "NAME")
    wanted = " ".join(f"--operation {operation}" for operation in operations)
    return (
        f"kafka-acls.sh --bootstrap-server {_servers(properties)} --add --allow-principal User:{user} {wanted} "
        f"--topic {topic}"
    )


def _servers(properties: Mapping[str, Any]) -> str:
    return str(properties.get("bootstrap.servers", "BROKERS"))

"""Plain values out of librdkafka's answers."""

from __future__ import annotations

from typing import Any, TypeAlias

from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from remote_fetch.kafka_clients import AdminClient
from remote_fetch.model import NO_EPOCH

__all__ = ["LogEnds", "addresses_of", "epoch_of", "leader_epoch_of", "raw_uuid", "settings_of"]

LogEnds: TypeAlias = tuple[int, int, int]
"""The first offset of a log, its high watermark (exclusive), and its last leader epoch: `NO_EPOCH` if it is unknown."""


def epoch_of(found: Any) -> int:
    """The leader epoch of an answer to ListOffsets, `NO_EPOCH` if the broker gives none."""
    return NO_EPOCH if found.leader_epoch is None else int(found.leader_epoch)


def leader_epoch_of(message: Any) -> int:
    """The leader epoch of a record, `NO_EPOCH` if it has none."""
    epoch = message.leader_epoch()
    return NO_EPOCH if epoch is None else int(epoch)


def raw_uuid(uuid: Any) -> bytes:
    """The 16 bytes of a uuid."""
    mask = 2**64 - 1
    most: int = uuid.get_most_significant_bits() & mask
    least: int = uuid.get_least_significant_bits() & mask
    return ((most << 64) | least).to_bytes(16, "big")


def settings_of(admin: AdminClient, kind: ResourceType, name: str, timeout_s: float) -> dict[str, str]:
    """The configuration in force of a topic or a broker, defaults included. Raises KafkaException."""
    wanted = ConfigResource(kind, name)
    found = admin.describe_configs([wanted], request_timeout=timeout_s)[wanted].result()
    return {key: entry.value for key, entry in found.items() if entry.value is not None}


def addresses_of(described: Any) -> str:
    """The addresses of the brokers that are in sync for any partition of a topic, as `bootstrap.servers` takes them.

    `described` is the answer of `describe_topics`. Empty if it names no broker.
    """
    nodes = {node.id: node for partition in described.partitions for node in partition.isr if node.host}
    hosts = {number: f"[{node.host}]" if ":" in node.host else node.host for number, node in sorted(nodes.items())}
    return ",".join(f"{host}:{nodes[number].port}" for number, host in hosts.items())

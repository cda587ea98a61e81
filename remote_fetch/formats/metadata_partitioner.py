"""Computes which partition of the remote log metadata topic holds the records of a user partition; and murmur2.

Rules of the file:

- Pure arithmetic, bit for bit as in the brokers' RemoteLogMetadataTopicPartitioner (KIP-405).
- A topic's id decides its partition, its name does not.
"""

from __future__ import annotations

from struct import unpack

from remote_fetch.model import Uuid

__all__ = ["metadata_partition", "murmur2"]

_MASK_32 = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995


def metadata_partition(topic_id: Uuid, partition: int, num_partitions: int) -> int:
    """The metadata partition for `partition` of a topic, if the metadata topic has `num_partitions` partitions.

    `num_partitions` has to be the topic's own count. Raises ValueError if it is below 1.
    """
    if num_partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {num_partitions}")
    combined = 1
    most, least = unpack(">QQ", topic_id.raw)
    for part in (_fold(least), _fold(most), partition):
        combined = (31 * combined + part) & _MASK_32
    return murmur2(combined.to_bytes(4, "big")) % num_partitions


def _fold(bits: int) -> int:
    """Java's hash of a 64-bit number."""
    return (bits ^ (bits >> 32)) & _MASK_32


def murmur2(data: bytes) -> int:
    """As `org.apache.kafka.common.utils.Utils.murmur2`, without its sign, as `Utils.toPositive` makes it."""
    hashed = _MURMUR_SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _MURMUR_FACTOR & _MASK_32
        part = (part ^ part >> 24) * _MURMUR_FACTOR & _MASK_32
        hashed = (hashed * _MURMUR_FACTOR & _MASK_32) ^ part
    rest = data[whole:]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MURMUR_FACTOR & _MASK_32
    hashed = (hashed ^ hashed >> 13) * _MURMUR_FACTOR & _MASK_32
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF

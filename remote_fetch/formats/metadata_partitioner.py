"""Computes which partition of the remote log metadata topic holds the records of a user partition.

Rules of the file:

- Pure arithmetic, bit for bit as in the brokers' RemoteLogMetadataTopicPartitioner (KIP-405).
- The topic's name is not part of it.
"""

from __future__ import annotations

from remote_fetch.model import Uuid

__all__ = ["metadata_partition"]

_MASK_32 = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_MURMUR_SHIFT = 24


def metadata_partition(topic_id: Uuid, partition: int, num_partitions: int) -> int:
    """The metadata partition for `partition` of a topic, if the metadata topic has `num_partitions` partitions.

    `num_partitions` has to be the topic's own count. Raises ValueError if it is below 1.
    """
    if num_partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {num_partitions}")
    combined = 1
    for part in (_fold(topic_id.least_significant_bits), _fold(topic_id.most_significant_bits), partition):
        combined = (31 * combined + part) & _MASK_32
    return (_murmur2(combined) & 0x7FFFFFFF) % num_partitions


def _fold(bits: int) -> int:
    """Java's hash of a 64-bit number."""
    return (bits ^ (bits >> 32)) & _MASK_32


def _murmur2(value: int) -> int:
    """Kafka's murmur2 of the four big-endian bytes of `value`, which it loads little-endian."""
    word = int.from_bytes(value.to_bytes(4, "big"), "little") * _MURMUR_FACTOR & _MASK_32
    word = (word ^ (word >> _MURMUR_SHIFT)) * _MURMUR_FACTOR & _MASK_32
    hashed = (_MURMUR_SEED ^ 4) * _MURMUR_FACTOR & _MASK_32 ^ word
    hashed = (hashed ^ (hashed >> 13)) * _MURMUR_FACTOR & _MASK_32
    return hashed ^ (hashed >> 15)

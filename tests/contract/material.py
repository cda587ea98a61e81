"""The topics that the consumers read, each partly only in the tier and partly only on the broker, and how to read them.

Rules of the file:

- A topic is made once for each broker, and lives as long as the broker. No test writes to it.
- A wait ends on a condition, or fails after a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.contract.kinds import Consumers, unique
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.transactions import interleaved_transactions, wait_decided

__all__ = [
    "TAIL",
    "TIMEOUT_S",
    "Material",
    "call_until_it_raises",
    "committed",
    "is_end",
    "make_material",
    "offsets_of",
    "poll_through",
    "poll_until",
    "read",
]

TIMEOUT_S = 150
TAIL = -2000
"""librdkafka's `OFFSET_TAIL(0)`. Lower values count back from the end of a log."""
_TIERED, _LOCAL = 100, 20
_LOG_START = 60


@dataclass(frozen=True, slots=True)
class Material:
    """The topics. Offsets below `tier_end` are in the tier alone, those up to `end` (exclusive) on the broker alone.

    That holds for `topic` (two partitions), for `trimmed` (one, whose log starts at `log_start`, in the tier) and, with
    ends of its own, for `transactional` (one, with aborted records and markers in the tier and past it, the last being
    a marker). `local` (one partition) is not tiered at all and has as many records as `topic`.
    """

    topic: str
    trimmed: str
    transactional: str
    local: str
    transactional_tier_end: int
    transactional_end: int
    tier_end: int = _TIERED
    end: int = _TIERED + _LOCAL
    log_start: int = _LOG_START

    def at(self, offset: int = -1001, partition: int = 0) -> TopicPartition:
        """A partition of `topic`."""
        return TopicPartition(self.topic, partition, offset)

    def both(self, offset: int = -1001) -> list[TopicPartition]:
        """Both partitions of `topic`."""
        return [self.at(offset, 0), self.at(offset, 1)]


def make_material(rig: Rig) -> Material:
    """Make the topics, and wait until what shall be in the tier is nowhere else."""
    topic, trimmed, transactional, local = (unique(name) for name in ("topic", "trimmed", "transactional", "local"))
    topics.create_topic(rig, topic, 2)
    topics.create_topic(rig, trimmed)
    topics.create_topic(rig, transactional)
    topics.create_topic(rig, local, remote_storage_enable="false", local_retention_ms="-2")
    topics.produce(rig, local, _TIERED + _LOCAL)
    topics.produce(rig, topic, _TIERED, partition=0)
    topics.produce(rig, topic, _TIERED, partition=1, seed=1)
    topics.produce(rig, trimmed, _TIERED, seed=2)
    interleaved_transactions(rig, transactional, [True, False, True, False], producers=2, seed=3)
    for name, partitions in ((topic, (0, 1)), (trimmed, (0,)), (transactional, (0,))):
        topics.wait_tiered(rig, name, partitions)
        topics.set_config(rig, name, local_retention_ms=-2)
    tier_end = topics.offsets(rig, transactional, 0).latest
    topics.delete_records(rig, trimmed, 0, _LOG_START)
    for partition in (0, 1):
        topics.produce(rig, topic, _LOCAL, partition=partition, seed=4, sizes=(0, 24))
    topics.produce(rig, trimmed, _LOCAL, seed=5, sizes=(0, 24))
    interleaved_transactions(rig, transactional, [True, False], producers=2, rounds=2, seed=6)
    wait_decided(rig, transactional)
    end = topics.offsets(rig, transactional, 0).latest
    rig.passing_topics.difference_update((topic, trimmed, transactional, local))  # other test files read them too
    return Material(topic, trimmed, transactional, local, tier_end, end)


def committed(consumers: Consumers, partition: TopicPartition) -> int:
    """The offset that the group of the consumers has committed, OFFSET_INVALID if none."""
    (found,) = consumers.plain().committed([partition], TIMEOUT_S)
    assert found.error is None
    return int(found.offset)


def read(consumer: Consumer, count: int) -> list[Message]:
    """Poll until there are so many records. Raises KafkaException for what is none."""
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        message = consumer.poll(0.1)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{len(messages)} of {count} records within {TIMEOUT_S} s")
    return messages


def poll_until(
    consumer: Consumer, what: str, condition: Callable[[], Any], into: list[Message] | None = None
) -> list[Message]:
    """Poll until the condition holds. Returns the messages and errors, which are also added to `into` at once."""
    messages: list[Message] = [] if into is None else into
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        message = consumer.poll(0.05)
        if message is not None:
            messages.append(message)
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {TIMEOUT_S} s: {what}")
    return messages


def call_until_it_raises(call: Callable[[], Any]) -> None:
    """Call, for a minute at most, something that waits a while and raises one day."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        call()


def poll_through(consumer: Consumer, is_last: Callable[[Message], bool]) -> list[Message]:
    """Poll until a message is the last wanted one. Returns all messages, including that one."""
    messages: list[Message] = []
    poll_until(consumer, "the last message", lambda: messages and is_last(messages[-1]), messages)
    return messages


def is_end(message: Message) -> bool:
    """Whether it tells of the end of a partition."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def offsets_of(messages: list[Message]) -> list[tuple[int, int]]:
    """Partition and offset of each, in order."""
    return [(message.partition() or 0, message.offset() or 0) for message in messages]

"""Reads the arguments of a consumer's methods as the parent's C code reads them.

Rules of the file:

- Pure. The parent raises the errors, unless a docstring says something else.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from confluent_kafka import Message, TopicPartition

from remote_fetch.consumer.offsets import partition_at

__all__ = ["after", "are_partitions", "integer", "is_asynchronous", "is_record", "offsets_of_commit", "seconds"]


def integer(given: object) -> int:
    """The integer that the parent would read: the lower 32 bits. 0 if the parent would refuse the value."""
    try:
        return operator.index(given) & 0xFFFFFFFF  # type: ignore[arg-type]
    except TypeError:
        return 0


def seconds(timeout: float) -> float:
    """The number that the parent would read. Raises the parent's error for a value that is none."""
    return math.ldexp(timeout, 0)


def is_asynchronous(*args: Any, **kwargs: Any) -> bool:
    """Whether `commit` returns at once. The parent reads `async`, the older name, if `asynchronous` is not given."""
    given = _of_commit(*args, **kwargs)
    return bool(given.get("asynchronous", given.get("async", True)))


def offsets_of_commit(*args: Any, **kwargs: Any) -> list[TopicPartition]:
    """The offsets that the arguments of an accepted `commit` name. Empty: those that are stored."""
    given = _of_commit(*args, **kwargs)
    message, offsets = given.get("message"), given.get("offsets")
    return offsets or ([] if message is None else [after(message)])


def _of_commit(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return dict(zip(("message", "offsets", "async", "asynchronous"), args, strict=False)) | kwargs


def is_record(message: object) -> bool:
    """Whether it is a message that the parent accepts as a record."""
    return type(message) is Message and message.error() is None


def after(message: Message) -> TopicPartition:
    """The position after a record, as `store_offsets` stores it."""
    return partition_at(
        message.topic() or "", message.partition() or 0, (message.offset() or 0) + 1, message.leader_epoch()
    )


def are_partitions(partitions: object) -> bool:
    """Whether the parent accepts the argument. If it does not, the parent raises the error."""
    return isinstance(partitions, list) and all(type(partition) is TopicPartition for partition in partitions)

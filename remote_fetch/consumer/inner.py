"""The parent's methods, bound to one consumer: what the engine may ask of librdkafka.

Rules of the file: a port and nothing else. It is here because the methods of the same names are overridden, and
because tests put something else in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import Message, TopicPartition

__all__ = ["Inner"]


class Inner(Protocol):
    """`confluent_kafka.Consumer` as far as the engine needs it; only the application's thread calls it."""

    def poll(self, timeout: float = ...) -> Message | None: ...  # noqa: D102
    def consume(self, num_messages: int = ..., timeout: float = ...) -> list[Message]: ...  # noqa: D102
    def assign(self, partitions: list[TopicPartition], /) -> None: ...  # noqa: D102
    def unassign(self) -> None: ...  # noqa: D102
    def incremental_assign(self, partitions: list[TopicPartition], /) -> None: ...  # noqa: D102
    def incremental_unassign(self, partitions: list[TopicPartition], /) -> None: ...  # noqa: D102
    def pause(self, partitions: list[TopicPartition]) -> None: ...  # noqa: D102
    def resume(self, partitions: list[TopicPartition]) -> None: ...  # noqa: D102
    def seek(self, partition: TopicPartition) -> None: ...  # noqa: D102
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]: ...  # noqa: D102
    def committed(self, partitions: list[TopicPartition], timeout: float = ...) -> list[TopicPartition]: ...  # noqa: D102
    def store_offsets(self, *, offsets: Sequence[TopicPartition]) -> Any: ...  # noqa: D102
    def get_watermark_offsets(  # noqa: D102
        self, partition: TopicPartition, timeout: float = ..., cached: bool = ...
    ) -> tuple[int, int] | None: ...

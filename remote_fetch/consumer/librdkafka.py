"""The methods of `confluent_kafka.Consumer` that the remote half calls, bound to one consumer.

Rules of the file:

- It has only a protocol. RemoteConsumer overrides methods of these names, so the remote half gets the parent's methods.
- Tests pass a fake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import Message, TopicPartition

__all__ = ["LibrdkafkaConsumer"]


class LibrdkafkaConsumer(Protocol):
    """The methods of `confluent_kafka.Consumer` that the remote half needs.

    Only the application's thread calls them.
    """

    def poll(self, timeout: float = ...) -> Message | None: ...  # noqa: D102
    def consume(self, num_messages: int = ..., timeout: float = ...) -> list[Message]: ...  # noqa: D102
    def assign(self, partitions: list[TopicPartition], /) -> None: ...  # noqa: D102
    def unassign(self) -> None: ...  # noqa: D102
    def assignment(self) -> list[TopicPartition]: ...  # noqa: D102
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

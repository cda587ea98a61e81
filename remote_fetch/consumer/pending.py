"""The messages that a running `consume` holds until it returns.

Rules of the file:

- Only the application's thread uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from remote_fetch.consumer.assigned import AssignedPartition, Key, key_of_message

__all__ = ["PendingMessages"]


class PendingMessages:
    """The messages of one `consume`, in `messages`.

    Callbacks may run before the application gets the messages. Callbacks and commits use the position before the
    messages. If a partition is taken away, sought elsewhere or paused, its messages are dropped, as the parent does.
    """

    def __init__(self, assigned: Mapping[Key, AssignedPartition]) -> None:
        self.messages: list[Message] = []
        self._assigned = assigned
        self._held: dict[Key, AssignedPartition] = {}
        self._held_count = 0

    def add(self, messages: list[Message]) -> None:
        """Take more messages."""
        self.messages += messages

    def hold(self) -> None:
        """Remember the positions before new messages, because callbacks may run now."""
        for message in self.messages[self._held_count :]:
            partition = self._assigned.get(key_of_message(message))
            if partition is not None and not partition.position.is_held and message.error() is None:
                self._held[partition.key] = partition  # first: what is held has to be released
                partition.position.hold(message)
        self._held_count = len(self.messages)

    def drop_outdated(self) -> None:
        """Drop messages of partitions that were taken away, sought elsewhere or paused.

        Call this after callbacks may have run.
        """
        outdated = {key for key, partition in self._held.items() if not partition.position.is_held}
        if not outdated:
            return
        kept = [message for message in self.messages[: self._held_count] if key_of_message(message) not in outdated]
        self.messages[: self._held_count], self._held_count = kept, len(kept)
        for key in outdated:
            del self._held[key]

    def deliver(self) -> None:
        """Move positions after messages of the store that came last. A handler of a signal may have raised before."""
        for message in self.messages[self._held_count :]:
            partition = self._assigned.get(key_of_message(message))
            if partition is not None and partition.state.is_readable:
                partition.position.deliver(message)

    def release(self) -> None:
        """Move the positions after the messages, because `consume` returns them."""
        if self._held:  # mostly not, and then no object is made here, see `Merge._take_from_store`
            for partition in self._held.values():
                partition.position.release()

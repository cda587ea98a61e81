"""Takes the remote half from the consumers of a forked child, because its threads run only in the parent process.

Rules of the file:

- The child calls nothing of the remote half, because a thread of the parent process may have held its locks.
- The child's consumer behaves like a `confluent_kafka.Consumer` after a fork: it gives no records.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remote_fetch.consumer.consumer import RemoteConsumer

__all__ = ["Forks"]


class Forks:
    """The consumers of this process that lose their remote half in a forked child."""

    def __init__(self) -> None:
        self._consumers: weakref.WeakSet[RemoteConsumer] = weakref.WeakSet()
        self._kept: list[object] = []
        self._is_registered = False

    def follow(self, consumer: RemoteConsumer) -> None:
        """Add a consumer."""
        if not self._is_registered and hasattr(os, "register_at_fork"):
            self._is_registered = True
            os.register_at_fork(after_in_child=self._in_child)
        self._consumers.add(consumer)

    def _in_child(self) -> None:
        for consumer in self._consumers:
            self._kept.append(consumer._detach_after_fork())  # if it were collected, it would be closed

"""What a fork leaves of a consumer: the threads stay behind, so the child has the parent class alone.

Rules of the file: nothing of the remote half is touched in the child, for its locks may be held by threads that are not
there. The child behaves as it does with `confluent_kafka.Consumer`: it is given nothing.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remote_fetch.consumer.consumer import RemoteConsumer

__all__ = ["Forks"]


class Forks:
    """The consumers of this process that a fork takes the remote half from."""

    def __init__(self) -> None:
        self._consumers: weakref.WeakSet[RemoteConsumer] = weakref.WeakSet()
        self._left: list[object] = []
        self._is_registered = False

    def follow(self, consumer: RemoteConsumer) -> None:
        """Take care of one more consumer."""
        if not self._is_registered and hasattr(os, "register_at_fork"):
            self._is_registered = True
            os.register_at_fork(after_in_child=self._in_child)
        self._consumers.add(consumer)

    def _in_child(self) -> None:
        for consumer in self._consumers:
            self._left.append(consumer._remote)  # what is let go of would be closed
            consumer._remote = None
            consumer._metrics = consumer._metrics.afresh()

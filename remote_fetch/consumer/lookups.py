"""Looks up topics in a separate thread, while the group tells at which offsets their partitions begin.

A feed begins after the group's answer, and then finds the answer about its topic. Over a slow line both take seconds.

Rules of the file:

- It asks only what the feeds ask first.
- An error is left to the feeds, which ask again and meet it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

__all__ = ["Lookups"]


class Lookups:
    """The lookups of one consumer. `look_up` takes a topic and one of its partitions. Another thread calls it."""

    def __init__(self, look_up: Callable[[str, int], object]) -> None:
        self._look_up = look_up
        self._is_closing = False

    def request(self, topics: Mapping[str, int]) -> None:
        """Start to look up topics, each with the number of a partition."""
        if topics:
            threading.Thread(target=self._run, args=(topics,), name="remote-fetch-lookup", daemon=True).start()

    def close(self) -> None:
        """Begin no further lookup. This does not wait for a running one."""
        self._is_closing = True

    def _run(self, topics: Mapping[str, int]) -> None:
        for topic, number in topics.items():
            if self._is_closing:
                return
            with suppress(BaseException):  # a fetcher may have a bug, and a panic in Rust is no Exception
                self._look_up(topic, number)

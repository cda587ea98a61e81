"""Asks the group what it has committed of newly assigned partitions, beside the application's thread.

Rules of the file: the question does not go through the application's own consumer, which lets one caller in at a time
and would have `poll` wait for the answer; an answer is taken by the application's thread alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.errors import Cancelled
from remote_fetch.locate.broker_errors import is_passing

__all__ = ["Committed"]

_PATIENCE_S = (1.0, 2.0, 2.0)
"""How long each of the questions waits."""

Ask = Callable[[Sequence[TopicPartition], float], Sequence[TopicPartition]]
Answer = tuple[Sequence[TopicPartition], Sequence[TopicPartition]]
"""What was asked, and what the group answered; nothing where it did not."""


class Committed:
    """The questions of one consumer.

    `ask` gives the committed offsets of partitions within some seconds, or raises KafkaException. `ring` is called when
    an answer can be taken. Both are called in another thread.
    """

    def __init__(self, ask: Ask, ring: Callable[[], None]) -> None:
        self._question = ask
        self._ring = ring
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    def ask(self, asked: Sequence[TopicPartition]) -> None:
        """Begin to ask for the committed offsets of partitions. The answer names this very list."""
        thread = threading.Thread(target=self._ask, args=(asked,), name="remote-fetch-committed", daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def take(self) -> list[Answer]:
        """The answers that have come since the last time."""
        if not self._answers:
            return []
        with self._lock:
            answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """Ask no more. A question that is under way is not waited for."""
        self._closing.set()

    def wait(self) -> None:
        """Wait until no question is under way: what is committed from now on is not the answer."""
        deadline_s = time.monotonic() + sum(_PATIENCE_S)
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0.0))

    def _ask(self, asked: Sequence[TopicPartition]) -> None:
        found: Sequence[TopicPartition] = []
        for patience_s in _PATIENCE_S:
            if self._closing.is_set():
                return
            try:
                found = self._question(asked, patience_s)
            except KafkaException as error:
                if is_passing(error):
                    continue
            except TimeoutError:
                continue
            except Cancelled:
                return
            break
        with self._lock:
            self._answers.append((asked, found))
        self._ring()

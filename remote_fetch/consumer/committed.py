"""Asks for the offsets at which newly assigned partitions begin, in a separate thread.

These are the group's committed offsets. If a consumer begins at the end of a log without one, the end is asked for at
once, because the application may poll much later.

Rules of the file:

- The request does not go through the application's consumer. That consumer lets in one caller at a time, so `poll`
  would wait for the answer.
- Only the application's thread takes answers.
- Each request gets an answer, also after an error, unless the consumer is closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from remote_fetch.deadline import Deadline, join_all
from remote_fetch.errors import Cancelled
from remote_fetch.failures.broker_errors import is_passing

__all__ = ["Answer", "CommittedOffsets", "Start"]

_LOG = logging.getLogger("remote_fetch")
_TIMEOUTS_S = (1.0, 1.6, 1.5)
"""How long each attempt waits."""
_PAUSE_S = 0.3
"""How long it waits after an attempt without an answer: a client needs a moment to find another coordinator."""
_LONGEST_S = sum(_TIMEOUTS_S) + len(_TIMEOUTS_S) * _PAUSE_S


class Start(NamedTuple):
    """Where a partition begins. `offset` is below 0 if the group has committed none.

    `is_end`: the group has committed none, and `offset` is the end of the log when that became known.
    """

    topic: str
    partition: int
    offset: int
    is_end: bool = False


Fetch = Callable[[Sequence[TopicPartition], float], Sequence[Start]]
Answer = tuple[Sequence[TopicPartition], Sequence[Start]]
"""The partitions of a request, and the answer, which is empty if the group did not answer."""


class CommittedOffsets:
    """The requests of one consumer.

    - `fetch` returns the starts of partitions within the given seconds, or raises KafkaException.
    - `notify` is called if an answer can be taken.
    - Both are called in another thread.
    """

    def __init__(self, fetch: Fetch, notify: Callable[[], None]) -> None:
        self._fetch = fetch
        self._notify = notify
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._threads: list[threading.Thread] = []
        self._is_closing = False

    def request(self, partitions: Sequence[TopicPartition]) -> None:
        """Start to ask for the committed offsets of partitions. The answer has the same list object."""
        thread = threading.Thread(target=self._run, args=(partitions,), name="remote-fetch-committed", daemon=True)
        self._threads = [running for running in self._threads if running.is_alive()] + [thread]
        thread.start()

    def leave(self, partitions: Sequence[TopicPartition]) -> None:
        """Give an empty answer for partitions, so that librdkafka asks for their committed offsets."""
        self._give((partitions, []))

    def take_answers(self) -> list[Answer]:
        """The answers that have come since the last call."""
        if not self._answers:
            return []
        with self._lock:
            answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        """Make no further attempt. This does not wait for a running attempt."""
        self._is_closing = True

    def wait(self, timeout_s: float = _LONGEST_S) -> None:
        """Wait until no request runs. So no later answer of these requests has an offset committed after this call."""
        join_all(self._threads, Deadline.after(timeout_s))

    def _run(self, partitions: Sequence[TopicPartition]) -> None:
        found: Sequence[Start] = []
        for timeout_s in _TIMEOUTS_S:
            if self._is_closing:
                return
            try:
                found = self._fetch(partitions, timeout_s)
            except KafkaException as error:
                if is_passing(error):
                    time.sleep(_PAUSE_S)
                    continue
            except TimeoutError:
                continue
            except Cancelled:
                return
            except Exception:  # without an answer the partitions would never be read; librdkafka asks again
                _LOG.exception("the committed offsets cannot be asked for")
            break
        self._give((partitions, found))

    def _give(self, answer: Answer) -> None:
        with self._lock:
            self._answers.append(answer)
        self._notify()

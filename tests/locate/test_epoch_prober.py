"""Questions about leader epochs from many threads, answered by one consumer that stands in for librdkafka's.

Rules of the file:

- The fake client answers for the assigned partitions, as librdkafka does.
- Tests with real leaders are in tests/rig.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.errors import Cancelled
from remote_fetch.locate.epoch_prober import EpochProber
from remote_fetch.model import TopicIdPartition, Uuid

EOF_CODE = KafkaError._PARTITION_EOF


def partition(topic: str, number: int = 0) -> TopicIdPartition:
    return TopicIdPartition(Uuid(bytes(16)), topic, number)


class Leaders:
    """A consumer: `answers` has an error code, or None for a record, for each topic; the others never answer."""

    def __init__(self, **answers: int | None) -> None:
        self.answers = answers
        self.calls: list[tuple[str, ...]] = []
        self.is_open = True
        self._due: deque[tuple[str, int]] = deque()

    def list_topics(self, topic: str, timeout: float) -> None:
        self.calls.append(("list_topics", topic))

    def assign(self, wanted: list[TopicPartition]) -> None:
        self.calls.append(("assign", *sorted(each.topic for each in wanted)))
        self._due = deque((each.topic, each.partition) for each in wanted if each.topic in self.answers)

    def unassign(self) -> None:
        self._due.clear()

    def poll(self, timeout: float) -> Any:
        if not self.is_open:
            raise RuntimeError("Consumer closed")
        if not self._due:
            threading.Event().wait(0.001)
            return None
        topic, number = self._due.popleft()
        code = self.answers[topic]
        error = None if code is None else KafkaError(code)
        return SimpleNamespace(topic=lambda: topic, partition=lambda: number, error=lambda: error)


def prober_of(leaders: Leaders, timeout_s: float = 5.0) -> EpochProber:
    return EpochProber(lambda: leaders, timeout_s=timeout_s)  # type: ignore[arg-type,return-value]


def test_a_topic_is_asked_for_before_it_is_assigned() -> None:
    leaders = Leaders(a=EOF_CODE)
    prober = prober_of(leaders)
    assert prober.holds(partition("a"), 3, 10)
    assert prober.holds(partition("a", 7), 3, 10)
    assert leaders.calls == [("list_topics", "a"), ("assign", "a"), ("assign", "a")]


def test_a_leader_that_does_not_answer_holds_up_no_other_partition() -> None:
    topics = [f"t{number}" for number in range(40)]
    leaders = Leaders(**dict.fromkeys(topics, EOF_CODE))
    prober = prober_of(leaders, timeout_s=3.0)
    with ThreadPoolExecutor(41) as threads:
        silent = threads.submit(prober.holds, partition("silent"), 1, 10)
        found = [threads.submit(prober.holds, partition(topic), 1, 10) for topic in topics]
        assert all(future.result(timeout=2.5) for future in found)
        assert not silent.done()
        assert silent.result(timeout=5) is False


def test_answers_are_noted_and_silence_is_not() -> None:
    noted: list[None] = []
    leaders: Any = Leaders(a=EOF_CODE, b=KafkaError._AUTO_OFFSET_RESET, c=KafkaError._TRANSPORT)
    prober = EpochProber(lambda: leaders, timeout_s=0.2, answered=lambda: noted.append(None))
    assert [prober.holds(partition(topic), 1, 10) for topic in "abc"] == [True, False, False]
    assert len(noted) == 2


def test_waiting_questions_share_an_assignment() -> None:
    """While one thread waits for a silent leader, the other questions come along with it."""
    leaders = Leaders(a=EOF_CODE, b=None, c=KafkaError._AUTO_OFFSET_RESET)
    prober = prober_of(leaders, timeout_s=0.5)
    with ThreadPoolExecutor(4) as threads:
        silent = threads.submit(prober.holds, partition("silent"), 1, 10)
        found = {topic: threads.submit(prober.holds, partition(topic), 1, 10) for topic in "abc"}
        assert {topic: future.result(timeout=5) for topic, future in found.items()} == {
            "a": True,
            "b": True,
            "c": False,
        }
        assert silent.result(timeout=5) is False
    assert any("silent" in call and len(call) > 2 for call in leaders.calls if call[0] == "assign")


def test_two_questions_about_one_partition_are_both_answered() -> None:
    prober = prober_of(Leaders(a=EOF_CODE))
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(prober.holds, partition("a"), epoch, 10) for epoch in range(8)]
        assert all(future.result(timeout=5) for future in found)


def test_a_refusal_is_raised_to_the_thread_that_asked() -> None:
    prober = prober_of(Leaders(a=EOF_CODE, secret=KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with ThreadPoolExecutor(2) as threads:
        fine = threads.submit(prober.holds, partition("a"), 1, 10)
        refused = threads.submit(prober.holds, partition("secret"), 1, 10)
        assert fine.result(timeout=5)
        with pytest.raises(KafkaException):
            refused.result(timeout=5)


def test_a_consumer_that_is_closed_leaves_no_thread_waiting() -> None:
    leaders = Leaders()
    leaders.is_open = False
    prober = prober_of(leaders)
    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(prober.holds, partition(f"t{number}"), 1, 10) for number in range(3)]
        for future in found:
            with pytest.raises(RuntimeError, match="closed"):
                future.result(timeout=5)


def test_a_cluster_that_is_closed_is_not_asked() -> None:
    def closed() -> Any:
        raise Cancelled("closed")

    prober = EpochProber(closed, timeout_s=5.0)
    with pytest.raises(Cancelled):
        prober.holds(partition("a"), 1, 10)
    with pytest.raises(Cancelled):
        prober.holds(partition("a"), 1, 10)

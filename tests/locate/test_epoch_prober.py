"""Questions about leader epochs from many threads, answered by one consumer that stands in for librdkafka's.

Rules of the file:

- The fake client answers for the assigned partitions, as librdkafka does.
- Tests with real leaders are in tests/rig.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.errors import Cancelled
from remote_fetch.locate import epoch_prober
from remote_fetch.locate.clients import Clients
from remote_fetch.locate.epoch_prober import EpochProber
from remote_fetch.model import TopicIdPartition, Uuid

EOF_CODE = KafkaError._PARTITION_EOF


def partition(topic: str, number: int = 0) -> TopicIdPartition:
    return TopicIdPartition(Uuid(bytes(16)), topic, number)


class Leaders:
    """A consumer: `answers` has an error code, or None for a record, for each topic; the others never answer.

    It answers after a seek, and after the second one for a topic of `ignored`. `fetches`: it gives a record as soon as
    a partition is assigned. The first `refused` seeks come before librdkafka has assigned the partition.
    """

    def __init__(self, **answers: int | None) -> None:
        self.answers = answers
        self.fetches, self.refused = False, 0
        self.ignored: set[str] = set()
        self.calls: list[tuple[str, ...]] = []
        self.is_open = True
        self._due: deque[tuple[str, int, int | None]] = deque()

    def list_topics(self, topic: str, timeout: float) -> None:
        self.calls.append(("list_topics", topic))

    def assign(self, wanted: list[TopicPartition]) -> None:
        self.calls.append(("assign", *sorted(each.topic for each in wanted)))
        self._due = deque((each.topic, each.partition, None) for each in wanted if self.fetches)

    def seek(self, wanted: TopicPartition) -> None:
        if self.refused:
            self.refused -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        assert wanted.leader_epoch is not None
        if wanted.topic in self.ignored:
            self.ignored.remove(wanted.topic)
        elif wanted.topic in self.answers:
            self._due.append((wanted.topic, wanted.partition, self.answers[wanted.topic]))

    def unassign(self) -> None:
        self._due.clear()

    def poll(self, timeout: float) -> Any:
        if not self.is_open:
            raise RuntimeError("Consumer closed")
        if not self._due:
            threading.Event().wait(0.001)
            return None
        topic, number, code = self._due.popleft()
        error = None if code is None else KafkaError(code)
        return SimpleNamespace(topic=lambda: topic, partition=lambda: number, error=lambda: error)


def asking(
    prober: Callable[[], Any],
    timeout_s: float = 60.0,
    *,
    replace: Callable[[Any], None] = lambda _: None,
    answered: Callable[[], None] = lambda: None,
) -> EpochProber:
    clients = SimpleNamespace(prober=prober, replace=replace, answered=answered)
    return EpochProber(cast(Clients, clients), timeout_s=timeout_s)


def prober_of(leaders: Leaders, timeout_s: float = 60.0) -> EpochProber:
    return asking(lambda: leaders, timeout_s)


def test_a_topic_is_asked_for_before_it_is_assigned() -> None:
    leaders = Leaders(a=EOF_CODE)
    prober = prober_of(leaders)
    assert prober.holds(partition("a"), 3, 10)
    assert prober.holds(partition("a", 7), 3, 10)
    assert leaders.calls == [("list_topics", "a"), ("assign", "a"), ("assign", "a")]


@pytest.mark.parametrize(("code", "holds"), [(EOF_CODE, True), (KafkaError._AUTO_OFFSET_RESET, False)])
def test_a_record_that_came_before_the_comparison_is_no_answer(code: int, holds: bool) -> None:
    """librdkafka has fetched it from a log that has grown over the offset again."""
    leaders = Leaders(a=code)
    leaders.fetches, leaders.refused = True, 1
    assert prober_of(leaders).holds(partition("a"), 3, 10) is holds


def test_a_new_assignment_asks_all_questions_again() -> None:
    """librdkafka drops what it was doing for the assignment before."""
    leaders = Leaders(a=EOF_CODE, b=EOF_CODE)
    leaders.ignored.add("a")
    prober = prober_of(leaders)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(prober.holds, partition("a"), 3, 10)
        while leaders.ignored:
            threading.Event().wait(0.001)
        assert prober.holds(partition("b"), 3, 10)
        assert first.result(timeout=60)


def test_a_leader_that_does_not_answer_holds_up_no_other_partition() -> None:
    topics = [f"t{number}" for number in range(40)]
    leaders = Leaders(**dict.fromkeys(topics, EOF_CODE))
    prober = prober_of(leaders)
    with ThreadPoolExecutor(41) as threads:
        silent = threads.submit(prober.holds, partition("silent"), 1, 10)
        found = [threads.submit(prober.holds, partition(topic), 1, 10) for topic in topics]
        assert all(future.result(timeout=30) for future in found)
        assert not silent.done()
        leaders.is_open = False
        with pytest.raises(RuntimeError, match="closed"):
            silent.result(timeout=60)


def test_another_consumer_asks_if_the_leader_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker has become the leader, but librdkafka stays with the old one as long as that is connected."""
    monkeypatch.setattr(epoch_prober, "ONE_ANSWER_S", 0.01)
    hung, sound = Leaders(a=EOF_CODE), Leaders(a=EOF_CODE, b=EOF_CODE)
    consumers: list[Any] = [hung, sound]

    def replace(consumer: object) -> None:
        if consumer is hung:
            consumers.remove(consumer)

    prober = asking(lambda: consumers[0], replace=replace)
    assert prober.holds(partition("a"), 1, 10)
    assert consumers == [hung, sound]
    hung.answers.clear()
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(prober.holds, partition(topic), 1, 10) for topic in "ab"]
        assert [future.result(timeout=60) for future in found] == [True, True]
    assert consumers == [sound]
    assert ("list_topics", "a") in sound.calls, "the new one does not know the topic yet"


def test_a_consumer_that_was_never_answered_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may only be slow to connect."""
    monkeypatch.setattr(epoch_prober, "ONE_ANSWER_S", 0.001)
    slow: list[Any] = [Leaders()]
    prober = asking(lambda: slow[0], 0.1, replace=slow.remove)
    assert not prober.holds(partition("a"), 1, 10)
    assert len(slow) == 1


def test_answers_are_noted_and_silence_is_not() -> None:
    noted: list[None] = []
    leaders: Any = Leaders(a=EOF_CODE, b=KafkaError._AUTO_OFFSET_RESET, c=KafkaError._TRANSPORT)
    for topics, timeout_s, found in (("ab", 60.0, [True, False]), ("c", 0.2, [False])):
        prober = asking(lambda: leaders, timeout_s, answered=lambda: noted.append(None))
        assert [prober.holds(partition(topic), 1, 10) for topic in topics] == found
        assert len(noted) == 2


def test_waiting_questions_share_an_assignment() -> None:
    """While one thread waits for a silent leader, the other questions come along with it."""
    leaders = Leaders(a=EOF_CODE, b=None, c=KafkaError._AUTO_OFFSET_RESET)
    prober = prober_of(leaders)
    with ThreadPoolExecutor(4) as threads:
        silent = threads.submit(prober.holds, partition("silent"), 1, 10)
        found = {topic: threads.submit(prober.holds, partition(topic), 1, 10) for topic in "abc"}
        assert {topic: future.result(timeout=60) for topic, future in found.items()} == {
            "a": True,
            "b": True,
            "c": False,
        }
        leaders.is_open = False
        with pytest.raises(RuntimeError, match="closed"):
            silent.result(timeout=60)
    assert any("silent" in call and len(call) > 2 for call in leaders.calls if call[0] == "assign")


def test_two_questions_about_one_partition_are_both_answered() -> None:
    prober = prober_of(Leaders(a=EOF_CODE))
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(prober.holds, partition("a"), epoch, 10) for epoch in range(8)]
        assert all(future.result(timeout=60) for future in found)


def test_a_refusal_is_raised_to_the_thread_that_asked() -> None:
    prober = prober_of(Leaders(a=EOF_CODE, secret=KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with ThreadPoolExecutor(2) as threads:
        fine = threads.submit(prober.holds, partition("a"), 1, 10)
        refused = threads.submit(prober.holds, partition("secret"), 1, 10)
        assert fine.result(timeout=60)
        with pytest.raises(KafkaException):
            refused.result(timeout=60)


def test_a_consumer_that_is_closed_leaves_no_thread_waiting() -> None:
    leaders = Leaders()
    leaders.is_open = False
    prober = prober_of(leaders)
    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(prober.holds, partition(f"t{number}"), 1, 10) for number in range(3)]
        for future in found:
            with pytest.raises(RuntimeError, match="closed"):
                future.result(timeout=60)


def test_a_cluster_that_is_closed_is_not_asked() -> None:
    def closed() -> Any:
        raise Cancelled("closed")

    prober = asking(closed, 5.0)
    with pytest.raises(Cancelled):
        prober.holds(partition("a"), 1, 10)
    with pytest.raises(Cancelled):
        prober.holds(partition("a"), 1, 10)


def test_a_close_ends_the_question_of_a_running_thread() -> None:
    """A client of confluent_kafka closes only when no thread calls it, and a thread that polls on calls it always."""
    leaders: Any = Leaders()
    closed = threading.Event()

    def opened() -> Any:
        if closed.is_set():
            raise Cancelled("closed")
        return leaders

    prober = asking(opened, 3600.0)
    with ThreadPoolExecutor(1) as threads:
        silent = threads.submit(prober.holds, partition("silent"), 1, 10)
        while ("assign", "silent") not in leaders.calls:
            threading.Event().wait(0.001)
        closed.set()
        try:
            with pytest.raises(Cancelled):
                silent.result(timeout=60)
        finally:
            leaders.is_open = False  # else the thread would not end

"""Arguments as the parent reads them: each answer is compared with a consumer of confluent_kafka, without a broker.

The contract suite proves more on a broker (tests/contract/test_arguments.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from remote_fetch.consumer.arguments import (
    after,
    are_partitions,
    integer,
    is_asynchronous,
    is_record,
    offsets_of_commit,
    seconds,
)
from remote_fetch.consumer.consumer import RemoteConsumer
from tests.cases import each_of

COMMITS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((), {"asynchronous": True}),
    ((), {"asynchronous": False}),
    ((), {"asynchronous": 0}),
    ((), {"asynchronous": ""}),
    ((), {"asynchronous": None}),
    ((), {"asynchronous": "no"}),
    ((), {"async": False}),
    ((), {"async": 0}),
    ((), {"async": True}),
    ((), {"async": False, "asynchronous": True}),
    ((), {"async": True, "asynchronous": False}),
    ((None,), {"asynchronous": []}),
    ((None, None), {}),
    ((None, None, False), {}),
    ((None, None, 0), {}),
    ((None, None, 1), {}),
    ((None, None, True, False), {}),
    ((None, None, False, True), {}),
    ((None, None, False), {"asynchronous": True}),
    ((), {"message": None, "offsets": None, "asynchronous": False}),
]
"""Arguments of `commit` that name no offsets. A synchronous one raises, because there is nothing to commit."""


@pytest.fixture
def parent() -> Iterator[Any]:
    consumer = Consumer({"group.id": "g"})
    yield consumer
    consumer.close()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Any]:
    keys = {"fetch.remote.enabled": True, "remote.storage.url": str(tmp_path)}
    with RemoteConsumer({"group.id": "g", **keys}) as consumer:
        yield consumer


@each_of(("args", "kwargs"), COMMITS)
def test_a_commit_waits_for_the_running_questions(
    parent: Any, remote: Any, monkeypatch: pytest.MonkeyPatch, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Else a partition that was just assigned could begin at the offset of this commit.

    An asynchronous commit waits a second at most, and a synchronous one until the last attempt to ask has ended.
    """
    waits: list[float] = []
    monkeypatch.setattr(remote._remote.committed, "wait", lambda timeout_s=5.0: waits.append(timeout_s))
    raised = []
    for consumer in (parent, remote):
        try:
            consumer.commit(*args, **kwargs)
            raised.append(False)
        except KafkaException:
            raised.append(True)
    assert raised == 2 * [waits == [5.0]]
    assert waits == [1.0 if is_asynchronous(*args, **kwargs) else 5.0]


def test_the_offsets_of_a_commit() -> None:
    message, offsets = Message("t", 2, 7), [TopicPartition("t", 1, 5)]
    assert offsets_of_commit() == offsets_of_commit(None, None, False) == offsets_of_commit(message=None) == []
    assert offsets_of_commit(None, offsets) == offsets_of_commit(offsets=offsets, asynchronous=False) == offsets
    for found in (offsets_of_commit(message), offsets_of_commit(message=message, asynchronous=False)):
        assert [(each.topic, each.partition, each.offset) for each in found] == [("t", 2, 8)]


@each_of("timeout", [None, "1", b"1", [], object(), 10**400, Decimal(0), False, 0, 0.0])
def test_a_timeout(parent: Any, remote: Any, timeout: Any) -> None:
    answers = [_answer(consumer.poll, timeout) for consumer in (parent, remote)]
    assert answers == 2 * [_answer(lambda given: None if seconds(given) >= 0 else given, timeout)]
    answers = [_answer(partial(consumer.consume, 1), timeout) for consumer in (parent, remote)]
    assert answers == 2 * [_answer(lambda given: [] if seconds(given) >= 0 else given, timeout)]


def _answer(call: Any, timeout: Any) -> tuple[object, ...]:
    try:
        return (call(timeout),)
    except Exception as error:
        return type(error), *error.args


def test_an_integer() -> None:
    assert [integer(given) for given in (3, True, "3", 3.0, None)] == [3, 1, 0, 0, 0]


@each_of("count", [-1, 0, 1, 1_000_000, 1_000_001, 2**32, 2**32 + 5, 2**32 + 1_000_001, 5 - 2**32])
def test_a_number_of_messages(parent: Any, remote: Any, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The parent reads the lower 32 bits. All that it takes goes through the merge, which counts the records."""
    merged: list[int] = []

    def consume(count: int, timeout_s: float) -> list[Message]:
        merged.append(count)
        return []

    monkeypatch.setattr(remote._remote.merge, "consume", consume)
    answers = [_answer(partial(consumer.consume, timeout=0), count) for consumer in (parent, remote)]
    assert answers[0] == answers[1]
    assert merged == [taken for taken in [integer(count)] if 0 < taken <= 1_000_000]


def test_a_record() -> None:
    record = Message("t", 1, 5, leader_epoch=2)
    assert is_record(record)
    assert not is_record(None)
    place = after(record)
    assert (place, place.offset, place.leader_epoch) == (TopicPartition("t", 1), 6, 2)


def test_partitions() -> None:
    assert are_partitions([TopicPartition("t", 1)])
    assert not are_partitions((TopicPartition("t", 1),))
    assert not are_partitions([None])

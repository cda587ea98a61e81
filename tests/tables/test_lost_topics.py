"""Tasks whose topic is deleted, or deleted and made again, after planning: what is read, left out, and said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import SegmentNotFound, StorageDenied, TopicRecreated, UnknownTopic
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid
from remote_fetch.prepare.completion import complete
from remote_fetch.session.brokers import Brokers
from remote_fetch.session.session import Session
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.planning import plan_batch
from remote_fetch.spark.reader import read_task
from remote_fetch.tables.task_reader import read_rows
from remote_fetch.tables.tasks import Task
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.spark.buckets import tier
from tests.stores.stand_in import Broker

COLUMNS = ("topic", "offset")
AGAIN = "topic 'gone' has the id X now: it was deleted and made again"
DELETED = "topic 'gone' was deleted after planning"
Make = Callable[[], Exception]
Found = list[tuple[str, int]]


def unknown() -> Exception:
    return KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


def again() -> Exception:
    return TopicRecreated(AGAIN)


def missing() -> Exception:
    return SegmentNotFound("no object")


def denied() -> Exception:
    return StorageDenied("a wrong key")


def log_of(topic: str, topic_id: Uuid) -> LogBuilder:
    """Two segments of three records."""
    log = LogBuilder(topic, topic_id)
    for _ in range(2):
        log.append_batch([Record(n, n, b"k", b"v") for n in range(3)])
        log.roll()
    return log


class Deletion(Broker):
    """Brokers of which the topic "gone" is deleted at offset `at`. Says what `error` and `answer` tell.

    `error` is raised to the reader, and `answer` to whom asks about the topic then. None: the topic is still there.
    """

    def __init__(self, log: LogBuilder, at: int, error: Make, answer: Make | None) -> None:
        super().__init__(log)
        self._at, self._error, self._answer = at, error, answer

    def check(self, partition: TopicIdPartition, isolation: IsolationLevel, next_offset: int) -> int:
        if partition.topic == "gone" and next_offset >= self._at:
            raise self._error()
        return next_offset

    def describe(self, name: str, **_: Any) -> None:
        """As `Cluster.describe`, for a locator that is asked for another copy."""
        raise UnknownTopic("the cluster has no such topic")

    def confirm(self, partition: TopicIdPartition) -> None:
        assert partition.topic == "gone"
        if self._answer is not None:
            raise self._answer()


@pytest.fixture
def task(tmp_path: Path) -> tuple[Task, dict[str, Any]]:
    """One task of the topics "gone" and "kept", in this order, and the configuration of its readers."""
    logs = [log_of("gone", Uuid(bytes(15) + b"\1")), log_of("kept", Uuid(bytes(15) + b"\2"))]
    options = tier(tmp_path, [one for log in logs for one in log.segments()])
    parsed = parse_options({**options, "subscribe": "gone,kept"})
    (planned,) = plan_batch(parsed).tasks
    return planned, dict(parsed.config)


def give(deletion: Deletion, patch: pytest.MonkeyPatch) -> None:
    """Let all sessions that are opened have these brokers."""
    open_session = Session.open

    def opened(*given: Any, **more: Any) -> Session:
        session = open_session(*given, **more)
        session.brokers = session.configured_locator.brokers = Brokers(deletion, deletion, None)  # type: ignore[arg-type]
        return session

    patch.setattr(Session, "open", opened)


def rows(batches: Any, found: Found) -> Found:
    for batch in batches:
        found += zip(batch.column("topic").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return found


@pytest.mark.parametrize(
    ("error", "answer", "said"),
    [
        (unknown, unknown, DELETED),
        (unknown, again, AGAIN),
        (again, again, AGAIN),
        (missing, unknown, DELETED),
    ],
)
@pytest.mark.parametrize("before", [0, 3])
def test_the_rest_of_a_topic_is_lost(
    task: tuple[Task, dict[str, Any]],
    error: Make,
    answer: Make,
    said: str,
    before: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The rows before are given, and those of the other topic if the loss may pass."""
    planned, config = task
    give(Deletion(log_of("kept", Uuid(bytes(16))), before, error, answer), monkeypatch)
    gone, kept = [("gone", offset) for offset in range(before)], [("kept", offset) for offset in range(6)]
    found: Found = []
    with pytest.raises(UnknownTopic) as caught:
        rows(read_task(planned, config, COLUMNS), found)
    assert found == gone
    assert caught.value.message == said
    assert "set the source option 'failOnDataLoss' to 'false'" in str(caught.value)
    with pytest.raises(UnknownTopic) as caught:
        rows(read_rows(planned, config, COLUMNS, loss_hint="allow_lost=True"), [])
    assert "allow_lost" not in str(caught.value)
    caplog.clear()
    assert rows(read_task(planned, {**config, "auto.offset.reset": "earliest"}, COLUMNS), []) == gone + kept
    assert caplog.text.count(f"gone-0: {said}, some data may have been missed") == 1


@pytest.mark.parametrize(
    ("error", "answer"),
    [(unknown, None), (missing, None), (denied, unknown)],
)
def test_an_error_of_a_topic_that_is_still_there(
    task: tuple[Task, dict[str, Any]], error: Make, answer: Make | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, config = task
    give(Deletion(log_of("kept", Uuid(bytes(16))), 3, error, answer), monkeypatch)
    with pytest.raises((KafkaException, UnknownTopic, StorageDenied)):
        rows(read_task(planned, {**config, "auto.offset.reset": "earliest"}, COLUMNS), [])


def test_a_topic_that_is_lost_before_its_plan_is_complete(
    task: tuple[Task, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planned, config = task

    def completed(session: Session, opened: Any, steps: Any) -> Any:
        if opened.partition.topic == "gone":
            raise SegmentNotFound("no object")
        return complete(session, opened, steps)

    monkeypatch.setattr("remote_fetch.tables.task_reader.complete", completed)
    give(Deletion(log_of("kept", Uuid(bytes(16))), 0, unknown, again), monkeypatch)
    with pytest.raises(TopicRecreated, match="failOnDataLoss"):
        rows(read_task(planned, config, COLUMNS), [])
    found = rows(read_task(planned, {**config, "auto.offset.reset": "earliest"}, COLUMNS), [])
    assert found == [("kept", offset) for offset in range(6)]
    assert "it was deleted and made again, some data may have been missed" in caplog.text

"""Reads a task, from its bytes to Arrow batches.

Rules of the file:

- A task is read by a session of its own, with the reading process's own credentials.
- A task gives all rows of its offsets, or, if data loss may pass, those that the broker still has. Else it fails.
- It never gives rows of a topic that has the name by now: that is another topic.
- A plan is completed first. Everything after that is the usual scan.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.config import Config
from remote_fetch.errors import (
    OffsetOutOfRange,
    RemoteFetchError,
    SegmentNotFound,
    TopicRecreated,
    UnknownTopic,
    Unlocatable,
)
from remote_fetch.failures.broker_errors import is_of_no_topic
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Notice, Observer, Report, ignore
from remote_fetch.prepare.completion import complete
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.session import Session
from remote_fetch.tables.tasks import Task, TaskPart

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from remote_fetch.typed.columns import TypedColumns
    from remote_fetch.typed.plan import TypedPlan

__all__ = ["read_rows", "typed_columns"]


def read_rows(
    task: Task,
    config: Mapping[str, Any],
    columns: Sequence[str],
    typed: TypedPlan | None = None,
    *,
    observer: Observer = ignore,
    report: Callable[[Report], None] = lambda report: None,
    loss_hint: str | None = None,
    may_be_cut: bool = True,
    may_lose_topics: bool = False,
) -> Generator[pa.RecordBatch]:
    """The rows of a task, in order of partition and offset, as `read_arrow` gives them.

    `config` is the configuration of the reading session. `typed`: which keys and values are typed. `report` gets the
    counters when the task ends or is given up. Raises the errors of reading, UndecodableValue, and OffsetOutOfRange,
    with `loss_hint`, if records of the task were deleted and data loss may not pass. LogTruncated, if `may_be_cut` is
    false and the log ends before the task does. UnknownTopic, if a topic was deleted after planning, or TopicRecreated,
    if it was also made again. With `may_lose_topics` a notice reports this, and the rest of the topic is left out.
    """
    with Session.open(config, observer, planned=replace(task.planned, may_be_cut=may_be_cut)) as session:
        topics = _Topics(session, may_be_lost=may_lose_topics)
        try:
            plans = [plan for plan in all_at_once(topics.complete, task.parts) if plan is not None]
            if typed is None:
                yield from topics.batches(Scan(session, plans, columns))
            else:
                into = typed_columns(typed, session.config, columns)
                yield from into.of(topics.batches(Scan(session, plans, into.raw_columns)))
        except OffsetOutOfRange as error:
            error.hint = loss_hint or error.hint
            raise
        finally:
            report(session.counters.report())


class _Topics:
    """Finds out, after an error, whether its topic is gone, and goes on without it if it may be lost."""

    def __init__(self, session: Session, *, may_be_lost: bool) -> None:
        self._session = session
        self._may_be_lost = may_be_lost

    def complete(self, part: TaskPart) -> PartitionPlan | None:
        """The complete plan of a part. None: its topic is lost."""
        try:
            return complete(self._session, part.opened, part.steps)
        except (KafkaException, RemoteFetchError) as error:
            self._lose(part.opened.partition, error)
            return None

    def batches(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """The rows of a scan, without those of lost topics."""
        while True:
            try:
                yield from scan.batches()
                return
            except (KafkaException, RemoteFetchError) as error:
                if scan.at is None:
                    raise
                self._lose(scan.at, error)
                scan.leave_out(scan.at.topic_id)

    def _lose(self, partition: TopicIdPartition, error: KafkaException | RemoteFetchError) -> None:
        """Report a lost topic. Raises its error if it may not be lost, and `error` if the topic is not gone."""
        gone = self._gone(partition) if _may_be_of_gone(error) else None
        if gone is None:
            raise error
        if not self._may_be_lost:
            raise gone from error
        place = partition.topic_partition
        self._session.observe(Notice(f"{place}: {gone.message}, some data may have been missed", is_warning=True))

    def _gone(self, partition: TopicIdPartition) -> UnknownTopic | None:
        """Ask the brokers. None: it is still the planned topic, or nothing is known."""
        if self._session.brokers is None:
            return None
        try:
            self._session.brokers.guard.confirm(partition)
        except TopicRecreated as gone:
            return gone
        except KafkaException as answer:
            if answer.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return UnknownTopic(f"topic {partition.topic!r} was deleted after planning", topic=partition.topic)
        return None


def _may_be_of_gone(error: KafkaException | RemoteFetchError) -> bool:
    """Whether the cause of an error may be that a topic was deleted, and its objects with it."""
    if isinstance(error, KafkaException):
        return is_of_no_topic(error)
    return isinstance(error, (UnknownTopic, SegmentNotFound, Unlocatable))


def typed_columns(plan: TypedPlan, config: Config, columns: Sequence[str]) -> TypedColumns:
    """The typed columns of files: their types are those that Spark and Parquet have, too."""
    from remote_fetch.typed.columns import TypedColumns  # noqa: PLC0415 - its libraries are needed here only

    return TypedColumns(plan, config, columns, is_portable=True)

"""The work of an executor: a task from its bytes to the batches that Spark takes.

Rules of the file:

- A task that fails is tried again by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from remote_fetch.errors import UnknownTopic
from remote_fetch.observe import Report
from remote_fetch.spark.limits import FAIL_ON_DATA_LOSS_HINT
from remote_fetch.spark.schema import as_spark
from remote_fetch.tables.task_reader import read_rows
from remote_fetch.tables.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from remote_fetch.typed.plan import TypedPlan

__all__ = ["read_task"]


def read_task(
    task: Task,
    config: Mapping[str, str],
    columns: Sequence[str],
    typed: TypedPlan | None = None,
    *,
    report: Callable[[Report], None] = lambda report: None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in order of partition and offset, as batches that Spark takes.

    `config` is `SourceOptions.config`. Otherwise as `read_rows`.
    """
    may_lose = config.get("auto.offset.reset") == "earliest"  # `parse_options` says so of failOnDataLoss
    hint = FAIL_ON_DATA_LOSS_HINT
    rows = read_rows(task, config, columns, typed, report=report, loss_hint=hint, may_lose_topics=may_lose)
    try:
        for batch in rows:
            yield as_spark(batch)
    except UnknownTopic as error:
        error.hint = hint
        raise

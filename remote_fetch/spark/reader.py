"""The work of an executor: a task from its bytes to Arrow batches.

Rules of the file:

- A task is read by a session of its own, with the worker's own credentials.
- A task gives all rows of its offsets, or, if data loss may pass, those that the broker still has. Else it fails, and
  Spark tries it again.
- A plan is completed first. Everything after that is the usual scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from remote_fetch.errors import OffsetOutOfRange
from remote_fetch.observe import Observer, Report, ignore
from remote_fetch.prepare.completion import complete
from remote_fetch.prepare.parallel import all_at_once
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.spark.limits import FAIL_ON_DATA_LOSS_HINT
from remote_fetch.spark.schema import as_spark
from remote_fetch.spark.tasks import Task, TaskPart

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

__all__ = ["read_rows", "read_task"]


def read_task(
    task: Task,
    config: Mapping[str, str],
    columns: Sequence[str],
    *,
    observer: Observer = ignore,
    report: Callable[[Report], None] = lambda report: None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in order of partition and offset, as batches that Spark takes; else as `read_rows`."""
    for batch in read_rows(task, config, columns, observer=observer, report=report):
        yield as_spark(batch)


def read_rows(
    task: Task,
    config: Mapping[str, str],
    columns: Sequence[str],
    *,
    observer: Observer = ignore,
    report: Callable[[Report], None] = lambda report: None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in order of partition and offset, as `read_arrow` gives them.

    `config` is `SourceOptions.config`. `report` gets the counters when the task ends or is given up. Raises the errors
    of reading, and OffsetOutOfRange if records of the task were deleted and data loss may not pass.
    """
    with Session.open(config, observer, planned=task.planned) as session:
        try:
            plans = all_at_once(partial(_complete, session), task.parts)
            yield from Scan(session, plans, columns).batches()
        except OffsetOutOfRange as error:
            error.hint = FAIL_ON_DATA_LOSS_HINT
            raise
        finally:
            report(session.counters.report())


def _complete(session: Session, part: TaskPart) -> PartitionPlan:
    return complete(session, part.opened, part.steps)

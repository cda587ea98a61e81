"""Reads a task, from its bytes to Arrow batches.

Rules of the file:

- A task is read by a session of its own, with the reading process's own credentials.
- A task gives all rows of its offsets, or, if data loss may pass, those that the broker still has. Else it fails.
- A plan is completed first. Everything after that is the usual scan.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from remote_fetch.config import Config
from remote_fetch.errors import OffsetOutOfRange
from remote_fetch.observe import Observer, Report, ignore
from remote_fetch.prepare.completion import complete
from remote_fetch.prepare.parallel import all_at_once
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
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
) -> Generator[pa.RecordBatch]:
    """The rows of a task, in order of partition and offset, as `read_arrow` gives them.

    `config` is the configuration of the reading session. `typed`: which keys and values are typed. `report` gets the
    counters when the task ends or is given up. Raises the errors of reading, UndecodableValue, and OffsetOutOfRange,
    with `loss_hint`, if records of the task were deleted and data loss may not pass. LogTruncated, if `may_be_cut` is
    false and the log ends before the task does.
    """
    with Session.open(config, observer, planned=replace(task.planned, may_be_cut=may_be_cut)) as session:
        try:
            plans = all_at_once(partial(_complete, session), task.parts)
            if typed is None:
                yield from Scan(session, plans, columns).batches()
            else:
                into = typed_columns(typed, session.config, columns)
                yield from into.of(Scan(session, plans, into.raw_columns).batches())
        except OffsetOutOfRange as error:
            error.hint = loss_hint or error.hint
            raise
        finally:
            report(session.counters.report())


def _complete(session: Session, part: TaskPart) -> PartitionPlan:
    return complete(session, part.opened, part.steps)


def typed_columns(plan: TypedPlan, config: Config, columns: Sequence[str]) -> TypedColumns:
    """The typed columns of files: their types are those that Spark and Parquet have, too."""
    from remote_fetch.typed.columns import TypedColumns  # noqa: PLC0415 - its libraries are needed here only

    return TypedColumns(plan, config, columns, is_portable=True)

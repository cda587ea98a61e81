"""The result of a job, as a value that prints as a few lines.

Rules of the file: pure, and no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from remote_fetch.amounts import counted, one_line
from remote_fetch.html_table import facts_table
from remote_fetch.observe import Report
from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.progress import Progress, starting_offsets

__all__ = ["TableReport", "report_of"]


@dataclass(frozen=True, slots=True)
class TableReport:
    """The result of an export or a backfill. Prints as a few lines.

    - `tasks`, `rows`, `files` and `size_bytes` (of the files) are those of the job, with its earlier runs.
    - `tasks_run` are the tasks of this call, and `seconds` is the time of this call.
    - `cost` sums up the reading of all tasks that count, also of the job's earlier runs.
    - `ranges` has the offsets [from, to) that the job has added, by partition.
    - `starting_offsets` is the JSON at which a stream of Spark's Kafka source goes on behind all that is in the target.
      None if a manifest of an older version does not tell it.
    - `notices` are sentences on the job itself. `cost.notices` has them, too.
    """

    job_id: str
    to: str
    tasks: int
    tasks_run: int
    rows: int
    files: int
    size_bytes: int
    cost: Report
    seconds: float
    ranges: Mapping[int, tuple[int, int]]
    starting_offsets: str | None
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        cost = self.cost
        fallbacks = ", ".join(f"{count} {reason}" for reason, count in cost.fallbacks.items()) or "none"
        goes_on = (
            "" if self.starting_offsets is None else f"\na stream goes on with startingOffsets {self.starting_offsets}"
        )
        return (
            f"{self._written()} of {self.size_bytes} bytes in {one_line(self.to)}\n"
            f"{counted(self.tasks, 'task')}, {self.tasks_run} run now, {self.seconds:.1f} s; job {self.job_id}\n"
            f"from the store: {cost.remote_bytes + cost.index_bytes} bytes with {cost.remote_gets + cost.index_gets} "
            f"GETs; from the broker: {cost.broker_bytes} bytes of {cost.broker_records} records; fallbacks: {fallbacks}"
            + "".join(f"\n{end}" for end in cost.ends.values())
            + goes_on
            + "".join(f"\nnote: {notice}" for notice in self.notices)
        )

    def _written(self) -> str:
        return f"{counted(self.rows, 'row')} in {counted(self.files, 'file')}"

    def _repr_html_(self) -> str:
        """The report as a notebook shows it, with the cost of its reading below."""
        own = {name: value for name, value in self.as_dict().items() if name not in self.cost.as_dict()}
        own["ranges"] = "\n".join(f"{at}: {first} to {stop}" for at, (first, stop) in sorted(self.ranges.items()))
        return facts_table(self._written(), own) + self.cost._repr_html_()

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return {
            **{name: getattr(self, name) for name in ("job_id", "to", "tasks", "tasks_run", "rows", "files")},
            "size_bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "ranges": {str(number): list(self.ranges[number]) for number in sorted(self.ranges)},
            "starting_offsets": self.starting_offsets,
            **self.cost.as_dict(),
        }


def report_of(
    job_id: str,
    to: str,
    records: Sequence[TaskRecord],
    *,
    tasks_run: int,
    seconds: float,
    added: Progress | None,
    held: Progress | None,
    partitions: Sequence[int],
    notices: Sequence[str],
    fallbacks: Mapping[str, int],
) -> TableReport:
    """The report of a job's records. `added` is what the job added, `held` all that the target holds now.

    `notices` and `fallbacks` are those of planning, and come on top of those of the records.
    """
    files = [file for record in records for file in record.files]
    costs = (_cost(record.cost) for record in records)
    return TableReport(
        job_id,
        to,
        len(records),
        tasks_run,
        sum(file.rows for file in files),
        len(files),
        sum(file.size_bytes for file in files),
        sum(costs, Report(notices=tuple(notices), fallbacks=dict(fallbacks))),
        seconds,
        {} if added is None else added.ranges,
        None if held is None else starting_offsets(held, partitions),
        tuple(notices),
    )


def _cost(saved: Mapping[str, Any]) -> Report:
    """The `Report` of a record. A newer release may have saved more counters, and an older one fewer."""
    known = {one.name: saved[one.name] for one in fields(Report) if one.name in saved}
    return Report(**{**known, "notices": tuple(known.get("notices", ()))})

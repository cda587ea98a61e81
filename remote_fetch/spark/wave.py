"""Tasks of a job as a function that Spark runs on its executors."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from remote_fetch.spark.collector import freeze_gc
from remote_fetch.tables.tasks import Task
from remote_fetch.tables.write_task import TaskWriter

__all__ = ["Wave"]


@dataclass(frozen=True, slots=True)
class Wave:
    """The function that Spark runs for each index of the pickled `tasks`; `numbers` are their numbers in the job."""

    writer: TaskWriter
    numbers: Sequence[int]
    tasks: Sequence[bytes]

    def __call__(self, at: int) -> str:
        """Run one task, and return its record as text."""
        task: Task = pickle.loads(self.tasks[at])
        record = self.writer.run(self.numbers[at], task)
        freeze_gc()
        return record.dump()

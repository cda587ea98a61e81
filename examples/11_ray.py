"""A topic as a Ray dataset: each task of the plan is a read task of Ray's.

Needs `pip install "ray[data]"`. Workers need remote-fetch, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from typing import Any

import pyarrow as pa
import ray
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from remote_fetch import scan_topic

tier = str(files("remote_fetch.cli") / "demo_bucket")
topic = scan_topic("codecs", columns=["partition", "offset", "value"], config={"remote.storage.url": tier})


def rows(scan: Any, task: Any) -> Iterator[pa.Table]:
    """The rows of one task, on a worker."""
    for batch in scan.read(task):
        yield pa.Table.from_batches([batch])


class TopicSource(Datasource):  # type: ignore[misc, unused-ignore]
    """The topic."""

    def __init__(self, scan: Any) -> None:
        super().__init__()
        self._scan = scan

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown before the rows are decoded."""
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        """The tasks of the plan."""
        return [
            ReadTask(
                partial(rows, self._scan, task),
                BlockMetadata(num_rows=None, size_bytes=task.size_bytes, input_files=None, exec_stats=None),
                schema=self._scan.schema,
            )
            for task in self._scan.tasks(task_bytes=8 << 10)
        ]


ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
dataset = ray.data.read_datasource(TopicSource(topic))
print(dataset.count(), "records, the greatest offset is", dataset.max("offset"))
ray.shutdown()

"""A topic as a Daft data source: each task is read by one of Daft's workers. Needs `pip install daft`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import daft
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema

from remote_fetch import scan_topic

tier = str(files("remote_fetch.cli") / "demo_bucket")
topic = scan_topic("codecs", columns=["partition", "offset", "value"], config={"remote.storage.url": tier})
schema = Schema.from_pyarrow_schema(topic.schema)


class TopicTask(DataSourceTask):  # type: ignore[misc, unused-ignore]
    """One task of the plan."""

    def __init__(self, task: Any) -> None:
        self._task = task

    @property
    def schema(self) -> Schema:
        """The columns, as Daft has them."""
        return schema

    async def read(self) -> AsyncIterator[RecordBatch]:
        """The rows of the task."""
        for batch in topic.read(self._task):
            yield RecordBatch.from_arrow_record_batches([batch], topic.schema)


class TopicSource(DataSource):  # type: ignore[misc, unused-ignore]
    """The topic."""

    @property
    def name(self) -> str:
        """The name in Daft's plans."""
        return topic.topic

    @property
    def schema(self) -> Schema:
        """The columns, as Daft has them."""
        return schema

    async def get_tasks(self, pushdowns: Any) -> AsyncIterator[TopicTask]:
        """The tasks of the plan."""
        for task in topic.tasks(task_bytes=8 << 10):
            yield TopicTask(task)


print(TopicSource().read().groupby("partition").agg(daft.col("offset").max()).sort("partition").to_pydict())

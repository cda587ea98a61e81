"""Backfills whose target is a bucket, on the stores' real servers: staged, committed file by file, done again.

Rules of the file:

- pyarrow reads a target back, through the filesystem that its options make.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.dataset as ds
import pytest

from remote_fetch.session.filesystems import open_filesystem
from remote_fetch.spark import backfill
from remote_fetch.tables.job_records import Committed, TaskRecord
from remote_fetch.tables.target import Target
from tests.cases import of_a_change
from tests.spark.test_backfill_job import options, rows, wanted
from tests.stores.servers import StoreServer
from tests.tables.test_target import dies_anywhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.parametrize("store", of_a_change(["s3", "gcs", "azure"]), indirect=True)

OPTIONS = "remote.storage.options."
TOPIC = "codecs"


@pytest.fixture
def place(store: StoreServer) -> tuple[str, dict[str, Any]]:
    """A folder of the store that nothing is in, and what its filesystem is made with."""
    configs = store.configs()
    made_with = {name.removeprefix(OPTIONS): value for name, value in configs.items() if name.startswith(OPTIONS)}
    return f"{configs['remote.storage.url']}/lake-{uuid4().hex}", made_with


def test_a_driver_that_dies_anywhere(place: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, made_with = place
    numbers = count()
    dies_anywhere(lambda: Target(f"{url}/orders{next(numbers)}", "job", made_with), monkeypatch)


def test_the_first_of_two_drivers_decides(place: tuple[str, dict[str, Any]]) -> None:
    url, made_with = place
    first, second = Committed("job", "orders", ()), Committed("job", "orders", (TaskRecord(0, "late", (), {}),))
    Target(f"{url}/orders", "job", made_with).decide(first)
    target = Target(f"{url}/orders", "job", made_with)
    target.decide(second)
    assert target.decided() == first


def test_a_folder_that_a_console_has_made(place: tuple[str, dict[str, Any]]) -> None:
    """It is empty, as opposed to an object of the target's name."""
    url, made_with = place
    for marker, is_free in ("orders/", True), ("object", False), ("full/other", False):
        target = Target(f"{url}/{marker.partition('/')[0]}", "job", made_with)
        filesystem, path = open_filesystem(url, made_with, key="to")
        filesystem.pipe_file(f"{path}/{marker}", b"")
        assert target.is_free() == is_free


def test_a_whole_backfill(spark: SparkSession, place: tuple[str, dict[str, Any]]) -> None:
    url, made_with = place
    to = f"{url}/orders"
    done = backfill(spark, TOPIC, to=to, to_options=made_with, options=options())
    filesystem, path = open_filesystem(to, made_with, key="to")
    found = ds.dataset(path, filesystem=filesystem, exclude_invalid_files=True).to_table()
    assert rows(found) == wanted(TOPIC)
    assert done.rows == len(found) > 0
    assert [name.rpartition("/")[2] for name in filesystem.ls(url, detail=False)] == ["orders"]
    again = backfill(spark, TOPIC, to=to, to_options=made_with, options=options())
    assert (again.rows, again.tasks_run) == (done.rows, 0)

"""Tables whose files lie in a bucket, on the stores' real servers: made, gone on with, and two jobs at once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from remote_fetch.tables import table_job
from tests.at_once import at_once
from tests.stores.servers import StoreServer
from tests.tables.tables import Topic, export, held, opened, same

OPTIONS = "remote.storage.options."
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def delta(server: StoreServer, _: Path) -> dict[str, Any]:
    """A Delta table that is not there yet. deltalake and fsspec are given the same account."""
    configs = server.configs()
    made_with = {name.removeprefix(OPTIONS): value for name, value in configs.items() if name.startswith(OPTIONS)}
    own = {
        "delta.aws_access_key_id": made_with["key"],
        "delta.aws_secret_access_key": made_with["secret"],
        "delta.aws_endpoint_url": made_with["endpoint_url"],
        "delta.aws_region": "us-east-1",
        "delta.aws_allow_http": "true",
        "delta.aws_conditional_put": "etag",
    }
    to = f"{configs['remote.storage.url']}/lake-{uuid4().hex}/topic"
    return {"format": "delta", "to": to, "to_options": {**made_with, **own}}


def iceberg(server: StoreServer, folder: Path) -> dict[str, Any]:
    """An Iceberg table that is not there yet, in a catalog on the disk."""
    configs = server.configs()
    options = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"{configs['remote.storage.url']}/lake-{uuid4().hex}",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "s3.endpoint": configs[f"{OPTIONS}endpoint_url"],
        "s3.access-key-id": configs[f"{OPTIONS}key"],
        "s3.secret-access-key": configs[f"{OPTIONS}secret"],
        "s3.region": "us-east-1",
    }
    return {"format": "iceberg", "to": "lake.topic", "to_options": options}


@pytest.fixture(params=[delta, iceberg], ids=lambda make: make.__name__)
def where(request: pytest.FixtureRequest, s3: StoreServer, tmp_path: Path) -> dict[str, Any]:
    """A table of each format in the S3 server's bucket."""
    make: Callable[[StoreServer, Path], dict[str, Any]] = request.param
    return make(s3, tmp_path)


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "tier").grow(2)


def test_a_table_goes_on_where_it_ends(where: dict[str, Any], topic: Topic) -> None:
    assert export(topic, where, partition_by=["hour"]).rows == 40
    assert same(held(where), topic.rows())
    assert export(topic, where, partition_by=["hour"]).rows == 0
    topic.grow()
    assert export(topic, where, partition_by=["hour"]).rows == 20
    assert same(held(where), topic.rows())
    assert opened(where).folder().jobs() == []


def test_two_jobs_at_once(where: dict[str, Any], topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are about to commit. The store lets one of them be first, and the other one finds that nothing is left."""
    export(topic, where)
    topic.grow()
    barrier, real, begun = threading.Barrier(2, timeout=60), table_job._commit, itertools.count()

    def commit(*args: Any) -> None:
        if next(begun) < 2:
            barrier.wait()
        real(*args)

    monkeypatch.setattr(table_job, "_commit", commit)
    reports = at_once([lambda: export(topic, where)] * 2)
    assert sorted(report.rows for report in reports) == [0, 20]
    assert same(held(where), topic.rows())

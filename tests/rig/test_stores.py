"""Reads one topic that a real broker tiered from every store. Each store gives the broker's records.

Rules of the file:

- S3 and HTTP serve the directory to which the broker tiers. GCS and Azure serve copies, uploaded with the stores' own
  libraries.
- If a server cannot be built, its part is skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATIONS, config_of, from_store, mixed_topic
from tests.rig.topics import OracleRecord
from tests.stores.artifacts import MissingTool
from tests.stores.azure_server import azure_server
from tests.stores.gcs_server import gcs_server
from tests.stores.moto_server import any_s3_server
from tests.stores.range_server import RangeServer
from tests.stores.servers import StoreServer

TREE = "kafka-tiered-storage"


@contextmanager
def s3(rig: Rig, topic: str, folder: Path) -> Iterator[dict[str, str]]:
    with any_s3_server(folder / "s3", rig.remote) as server:
        yield server.configs()


@contextmanager
def gcs(rig: Rig, topic: str, folder: Path) -> Iterator[dict[str, str]]:
    with gcs_server(folder / "gcs") as server:
        upload(rig, topic, server)
        yield server.configs()


@contextmanager
def azure(rig: Rig, topic: str, folder: Path) -> Iterator[dict[str, str]]:
    with azure_server(folder / "azure") as server:
        upload(rig, topic, server)
        yield server.configs()


@contextmanager
def http(rig: Rig, topic: str, folder: Path) -> Iterator[dict[str, str]]:
    files = {name: path.read_bytes() for name, path in objects(rig, topic)}
    with RangeServer(files) as server:
        yield {"remote.storage.url": f"{server.url}/{TREE}"}


def objects(rig: Rig, topic: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((rig.remote / TREE).glob(f"{topic}-*/*")):
        yield path.relative_to(rig.remote).as_posix(), path


def upload(rig: Rig, topic: str, server: StoreServer) -> None:
    for name, path in objects(rig, topic):
        server.put(name, path.read_bytes())


@pytest.fixture(scope="module")
def tiered(rig_43: Rig) -> tuple[str, dict[str, list[OracleRecord]]]:
    """A topic with every codec and transactions that ended both ways, and the broker's own reading of it."""
    topic = "by-every-store"
    mixed_topic(rig_43, topic)
    return topic, {isolation: topics.broker_records(rig_43, topic, 0, isolation) for isolation in ISOLATIONS}


@pytest.mark.parametrize("place", [s3, gcs, azure, http], ids=lambda place: place.__name__)
def test_the_stream_is_the_brokers(
    rig_43: Rig,
    tiered: tuple[str, dict[str, list[OracleRecord]]],
    tmp_path: Path,
    place: Callable[[Rig, str, Path], AbstractContextManager[dict[str, str]]],
) -> None:
    topic, expected = tiered
    try:
        with place(rig_43, topic, tmp_path) as configs:
            for isolation in ISOLATIONS:
                found, report = from_store({**config_of(rig_43), **configs}, topic, isolation)
                assert found == expected[isolation]
                assert (report.broker_records, report.fallbacks) == (0, {})
                assert report.remote_gets > 0
    except MissingTool as error:
        pytest.skip(str(error))
    assert len(expected["read_committed"]) < len(expected["read_uncommitted"])

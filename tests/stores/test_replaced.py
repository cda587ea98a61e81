"""An object of a cloud's store that is replaced while it is read, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import SegmentNotFound
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.testing.stores import kafka_local_files
from tests.scan.bucket import plain_log
from tests.stores.artifacts import MissingTool
from tests.stores.azure_server import azure_server
from tests.stores.gcs_server import gcs_server
from tests.stores.moto_server import any_s3_server
from tests.stores.s3_server import BUCKET, S3Server
from tests.stores.servers import StoreServer

(SEGMENT,) = plain_log(segments=1).segments()
NAME = next(name for name, _ in kafka_local_files(SEGMENT) if name.endswith(".log"))


def put(server: StoreServer, data: bytes) -> None:
    """Write the object through the store's own interface, so that it gets an identity."""
    if isinstance(server, S3Server):
        server.client().put_object(Bucket=BUCKET, Key=NAME, Body=data)
    else:
        server.put(NAME, data)


@pytest.fixture(params=["s3", "gcs", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreServer]:
    """A server of this test's own, for it changes what the server holds."""
    folder = tmp_path / "server"
    folder.mkdir()
    servers: dict[str, Callable[[], AbstractContextManager[StoreServer]]] = {
        "s3": lambda: any_s3_server(folder, folder / "tier"),
        "gcs": lambda: gcs_server(folder),
        "azure": lambda: azure_server(folder),
    }
    try:
        with servers[request.param]() as running:
            yield running
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_an_object_that_is_replaced(store: StoreServer) -> None:
    put(store, SEGMENT.log)
    fetcher = load_fetcher(Config.parse(store.configs()))
    try:
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 0, 10)) == SEGMENT.log[:10]
        assert bytes(fetcher.fetch_log_segment(SEGMENT.metadata, 10, 20)) == SEGMENT.log[10:20]
        put(store, bytes(len(SEGMENT.log)))
        with pytest.raises(SegmentNotFound, match="replaced"):
            fetcher.fetch_log_segment(SEGMENT.metadata, 20, 30)
    finally:
        fetcher.close()

"""The stores' servers, one of each for the whole session, with the tree that a real broker tiered; what they said when
a test fails.

Rules of the file:

- A test that changes the objects or permissions of a server starts its own server.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.config import Config
from remote_fetch.fetch.registry import load_fetcher
from tests.stores.artifacts import MissingTool
from tests.stores.azure_server import AzureServer, azure_server
from tests.stores.gcs_server import GcsServer, gcs_server
from tests.stores.moto_server import MotoServer, any_s3_server
from tests.stores.s3_server import S3Server
from tests.stores.servers import PATIENCE, StoreServer, put_tree

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "local-4.1" / "remote"
TOPIC = "tx-roll"
_SERVERS = frozenset(("azure", "checking", "gcs", "s3", "store"))
"""Fixtures that start a server, now or when they are asked to. A file that has its own calls it `s3` or `store`."""


def tree_of_one_topic(directory: Path) -> Path:
    """A directory with the objects of one of the broker's topics."""
    for path in sorted((GOLDEN / "kafka-tiered-storage").glob(f"{TOPIC}-*/*")):
        copy = directory / path.relative_to(GOLDEN)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return directory


def _started(server: AbstractContextManager[StoreServer], tree: Path) -> Iterator[StoreServer]:
    try:
        with server as running:
            put_tree(running, tree)
            yield running
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the servers hold."""
    return tree_of_one_topic(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def s3(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """The session's S3 server."""
    folder = tmp_path_factory.mktemp("s3")
    yield from _started(any_s3_server(folder, folder / "tier"), tree)


@pytest.fixture(scope="session")
def gcs(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """The session's GCS server."""
    yield from _started(gcs_server(tmp_path_factory.mktemp("gcs")), tree)


@pytest.fixture(scope="session")
def azure(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """The session's Azure server."""
    yield from _started(azure_server(tmp_path_factory.mktemp("azure")), tree)


@pytest.fixture(params=["s3", "gcs", "azure"])
def store(request: pytest.FixtureRequest) -> StoreServer:
    """Each of them in turn."""
    found: StoreServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def opened() -> Iterator[Callable[[dict[str, str]], Any]]:
    """Opens a fetcher of a configuration. All of them are closed at the end of the test."""
    fetchers: list[Any] = []

    def open_one(configs: dict[str, str]) -> Any:
        fetchers.append(load_fetcher(Config.parse({**PATIENCE, **configs})))
        return fetchers[-1]

    yield open_one
    for fetcher in fetchers:
        fetcher.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what the servers of a failed test said into its report."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for found in item.funcargs.values():
            if isinstance(found, S3Server | MotoServer | GcsServer | AzureServer):
                report.sections.append((f"end of {found.server.log_file}", found.server.log_tail()))
    return report


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what starts a server of a store."""
    if isinstance(item, pytest.Function) and not _SERVERS.isdisjoint(item.fixturenames):
        item.add_marker("servers")

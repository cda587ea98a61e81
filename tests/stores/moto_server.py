"""An S3 server if versitygw cannot be built: moto, which needs only Python, and checks no signatures.

Rules of the file:

- Objects are written with boto3.
- moto has no users and refuses no request. Tests of signatures, users and policies need versitygw.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stores.artifacts import missing_tool, moto
from tests.stores.s3_server import BUCKET, S3Server, client_of, s3_server
from tests.stores.servers import Server, configs_of, free_port, put_tree, serving

__all__ = ["MotoServer", "any_s3_server", "moto_server"]

_KEY, _SECRET = "anybody", "anything"


@dataclass(frozen=True, slots=True)
class MotoServer:
    """A running server with one bucket."""

    server: Server
    client: Any = field(repr=False)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return self.server.endpoint

    def put(self, name: str, data: bytes) -> None:
        """As `StoreServer.put`."""
        self.client.put_object(Bucket=BUCKET, Key=name, Body=data)

    def configs(self, **options: str) -> dict[str, str]:
        """As `StoreServer.configs`."""
        own = {"key": _KEY, "secret": _SECRET, "endpoint_url": self.endpoint}
        return configs_of(f"s3://{BUCKET}", {**own, **options})


def any_s3_server(folder: Path, directory: Path) -> AbstractContextManager[S3Server | MotoServer]:
    """A server with the files of `directory`, for reads only: moto if versitygw cannot be built."""
    return s3_server(folder, directory) if missing_tool("go") is None else moto_server(folder, directory)


@contextmanager
def moto_server(folder: Path, directory: Path) -> Iterator[MotoServer]:
    """A server with its log in `folder`, that begins with what is in `directory`. Raises BuildError."""
    packages = moto()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(Server(command, folder / "moto.log", port, {"PYTHONPATH": str(packages)})) as server:
        client = client_of(server.endpoint, _KEY, _SECRET)
        client.create_bucket(Bucket=BUCKET)
        found = MotoServer(server, client)
        put_tree(found, directory)
        yield found
        client.close()

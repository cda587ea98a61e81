"""An S3 server where versitygw cannot be built: moto, which needs nothing but Python, and checks no signatures.

Rules of the file: objects are written with boto3. It knows nobody and refuses nobody: what is about signatures, users
and policies is versitygw's to show.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stores.artifacts import moto
from tests.stores.servers import Server, free_port, put_tree, serving

__all__ = ["MotoServer", "moto_server"]

_BUCKET = "tier"
_KEY, _SECRET = "anybody", "anything"


@dataclass(frozen=True, slots=True)
class MotoServer:
    """A running server with one bucket."""

    server: Server
    client: Any = field(repr=False)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server.port}"

    def put(self, name: str, data: bytes) -> None:
        """As `StoreServer.put`."""
        self.client.put_object(Bucket=_BUCKET, Key=name, Body=data)

    def configs(self, **options: str) -> dict[str, str]:
        """As `StoreServer.configs`."""
        own = {"key": _KEY, "secret": _SECRET, "endpoint_url": self.endpoint}
        found = {f"remote.storage.options.{name}": value for name, value in {**own, **options}.items()}
        return {"remote.storage.url": f"s3://{_BUCKET}", **found}


@contextmanager
def moto_server(folder: Path, directory: Path) -> Iterator[MotoServer]:
    """A server with its log in `folder`, that begins with what is in `directory`. Raises BuildError."""
    packages = moto()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(Server(command, folder / "moto.log", port, {"PYTHONPATH": str(packages)})) as server:
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id=_KEY,
            aws_secret_access_key=_SECRET,
        )
        client.create_bucket(Bucket=_BUCKET)
        found = MotoServer(server, client)
        put_tree(found, directory)
        yield found
        client.close()

"""A server of Google Cloud Storage's JSON API: fake-gcs-server, which keeps its objects in a directory.

Rules of the file:

- Objects are written with google-cloud-storage.
- The server checks no credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stores.artifacts import fake_gcs_server
from tests.stores.servers import Server, configs_of, free_port, serving

__all__ = ["BUCKET", "GcsServer", "gcs_server"]

BUCKET = "tier"


@dataclass(frozen=True, slots=True)
class GcsServer:
    """A running server with one bucket."""

    server: Server
    client: Any = field(repr=False)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return self.server.endpoint

    def put(self, name: str, data: bytes) -> None:
        """As `StoreServer.put`."""
        self.client.bucket(BUCKET).blob(name).upload_from_string(data, content_type="application/octet-stream")

    def configs(self, **options: str) -> dict[str, str]:
        """As `StoreServer.configs`."""
        return configs_of(f"gs://{BUCKET}", {"token": "anon", "endpoint_url": self.endpoint, **options})


@contextmanager
def gcs_server(folder: Path) -> Iterator[GcsServer]:
    """A server with its things in `folder`. Raises MissingTool."""
    program = fake_gcs_server()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    backend = ["-backend", "filesystem", "-filesystem-root", str(folder / "objects")]
    with serving(Server([str(program), *place, *backend], folder / "fake-gcs-server.log", port)) as server:
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        client = storage.Client(
            project="tests",
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": server.endpoint},
        )
        client.create_bucket(BUCKET)
        yield GcsServer(server, client)
        client.close()

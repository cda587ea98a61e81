"""Microsoft's emulator of Azure's blobs, Azurite, which checks shared keys and SAS and keeps its blobs in memory.

Rules of the file:

- Blobs are written with azure-storage-blob.
- Account and key are the emulator's well-known ones.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.stores.artifacts import azurite
from tests.stores.servers import Server, configs_of, free_port, serving

__all__ = ["CONTAINER", "AzureServer", "azure_server"]

CONTAINER = "tier"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A running server with one container."""

    server: Server
    client: Any = field(repr=False)

    @property
    def endpoint(self) -> str:
        """The account's URL."""
        return f"{self.server.endpoint}/{ACCOUNT}"

    def put(self, name: str, data: bytes) -> None:
        """As `StoreServer.put`."""
        self.client.get_blob_client(CONTAINER, name).upload_blob(data, overwrite=True)

    def configs(self, **options: str) -> dict[str, str]:
        """As `StoreServer.configs`; with the account's key by default."""
        own = {"connection_string": self.connection_string(f"AccountName={ACCOUNT};AccountKey={KEY}")}
        return configs_of(f"az://{CONTAINER}", {**own, **options})

    def connection_string(self, credential: str) -> str:
        """How a client connects as `credential` (`SharedAccessSignature=...`) says."""
        return f"DefaultEndpointsProtocol=http;BlobEndpoint={self.endpoint};{credential}"

    def sas(self, permission: str, *, minutes: int = 60) -> str:
        """A container's SAS with the permissions of these letters, valid for so long; negative: expired."""
        from azure.storage.blob import generate_container_sas

        now = datetime.datetime.now(datetime.UTC)
        return str(
            generate_container_sas(
                ACCOUNT,
                CONTAINER,
                account_key=KEY,
                permission=permission,
                start=now - datetime.timedelta(hours=2),
                expiry=now + datetime.timedelta(minutes=minutes),
            )
        )


@contextmanager
def azure_server(folder: Path) -> Iterator[AzureServer]:
    """A server with its log in `folder`. Raises MissingTool."""
    program = azurite()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck", "--disableTelemetry"]
    with serving(Server([str(program), *options, "--inMemoryPersistence"], folder / "azurite.log", port)) as server:
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient(f"{server.endpoint}/{ACCOUNT}", credential=KEY) as client:
            client.create_container(CONTAINER)
            yield AzureServer(server, client)

"""Clients of Azure Blob Storage that follow no redirect.

Rules of the file:

- azure-core follows a redirect to any host, and takes off only Authorization. The body of a PUT would go to that host,
  and its answer would be taken for the store's.
- adlfs finds the account and the credentials. It gives its own client no such option.
- This module loads the SDK. Callers import it when a container is opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from adlfs import AzureBlobFileSystem
from azure.storage.blob.aio import BlobServiceClient

__all__ = ["DirectFileSystem", "client_of", "not_anonymous"]

_ANY: Any = AzureBlobFileSystem


class DirectFileSystem(_ANY):  # type: ignore[misc]
    """adlfs's filesystem with a client that follows no redirect. Pickles by its name in the module."""

    def do_connect(self) -> None:
        """As `AzureBlobFileSystem.do_connect`."""
        super().do_connect()
        self.service_client = client_of(self)


def client_of(filesystem: Any, **options: Any) -> Any:
    """A client for the account and the credentials that adlfs has found. `options` are those of the SDK's client."""
    direct = {"permit_redirects": False, **options}
    if filesystem.connection_string is not None:
        return BlobServiceClient.from_connection_string(filesystem.connection_string, **direct)
    url = filesystem.account_url
    credential = filesystem.credential or filesystem.account_key
    if credential is None and filesystem.sas_token is not None:
        url = f"{url}?{filesystem.sas_token.lstrip('?')}"
    return BlobServiceClient(url, credential=credential, **direct)


def not_anonymous(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options by which adlfs looks for credentials: before 2026.4 it does so only if `anon` is false."""
    connection = options.get("connection_string") or os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    if connection or "AZURE_STORAGE_ANON" in os.environ:
        return options
    return {"anon": False, **options}

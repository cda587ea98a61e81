"""Segments in Azure Blob Storage, by way of adlfs."""

from __future__ import annotations

from fetchers._composed import ComposedFetcher

__all__ = ["AzureFetcher"]


class AzureFetcher(ComposedFetcher):
    """The fetcher `azure`: `remote.storage.url` is `abfs://container@account.dfs.core.windows.net/prefix` or `az://container/prefix`."""

    protocol = "abfs"
    extra = "azure"

"""Segments on a file system of this machine: a directory, an NFS mount, a copy of a bucket."""

from __future__ import annotations

from fetchers._composed import ComposedFetcher

__all__ = ["LocalFetcher"]


class LocalFetcher(ComposedFetcher):
    """The fetcher `local`: `remote.storage.url` is a directory or a `file://` URL."""

    protocol = "file"

"""Segments in the memory of this process (fsspec's `memory://`): for tests and for trying things out."""

from __future__ import annotations

from fetchers._composed import ComposedFetcher

__all__ = ["MemoryFetcher"]


class MemoryFetcher(ComposedFetcher):
    """The fetcher `memory`: `remote.storage.url` is a `memory://` URL, shared by everybody in the process."""

    protocol = "memory"

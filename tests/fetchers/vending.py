"""A service that vends access, as the fetcher `vended` sees it: a LocationSource whose every answer tests can change.

Rules of the file:

- URLs are made by a function that the test gives.
- A lie is another function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from fetchers.vended import VendedFetcher
from remote_fetch.errors import RemoteFetchError
from remote_fetch.fetch.spi import ObjectNamer
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata

__all__ = ["Source", "at", "opened"]

Locate = Callable[[RemoteLogSegmentMetadata, Mapping[str, str]], Mapping[str, str]]
"""From a segment and the names of its objects by kind to URLs by name."""


def at(base: str, query: str = "") -> Locate:
    """URLs below `base`, each with this query."""
    return lambda metadata, names: {name: f"{base}/{quote(name)}?{query}" for name in names.values()}


class Source:
    """Answers with the URLs that `locate` makes. `asked` has each question; `error` is raised instead of an answer."""

    def __init__(self, namer: ObjectNamer, locate: Locate, layout: str = "kafka_local", **options: str) -> None:
        self.namer = namer
        self.locate = locate
        self.named: tuple[str, Mapping[str, str]] = (layout, options)
        self.error: RemoteFetchError | None = None
        self.asked: list[tuple[RemoteLogSegmentId, bool]] = []
        self.layouts_asked = 0
        self._lock = threading.Lock()

    def layout(self) -> tuple[str, Mapping[str, str]]:
        with self._lock:
            self.layouts_asked += 1
        return self.named

    def locations(self, metadata: RemoteLogSegmentMetadata, *, refused: bool) -> Mapping[str, str]:
        with self._lock:
            self.asked.append((metadata.segment_id, refused))
        if self.error is not None:
            raise self.error
        return self.locate(metadata, self.namer.object_names(metadata))


def opened(source: Any, *, url: str = "http://127.0.0.1:1", **configs: str) -> VendedFetcher:
    """A fetcher with this source, configured for a service at `url`; `__` in names of keys stands for a dot."""
    fetcher = VendedFetcher()
    fetcher.take_locations(source)
    given = {name.replace("__", "."): text for name, text in configs.items()}
    patience = {"fetch.remote.connect.timeout.ms": "30000", "fetch.remote.read.timeout.ms": "30000"}
    fetcher.configure({"remote.locator.url": url, **patience, **given})
    return fetcher

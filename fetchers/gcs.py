"""Segments in Google Cloud Storage, by way of gcsfs."""

from __future__ import annotations

from fetchers._composed import ComposedFetcher

__all__ = ["GcsFetcher"]


class GcsFetcher(ComposedFetcher):
    """The fetcher `gcs`: `remote.storage.url` is `gs://bucket/prefix`."""

    protocol = "gs"
    extra = "gcs"

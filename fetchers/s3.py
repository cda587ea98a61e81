"""Segments in Amazon S3 and stores that speak its protocol, by way of s3fs."""

from __future__ import annotations

from fetchers._composed import ComposedFetcher

__all__ = ["S3Fetcher"]


class S3Fetcher(ComposedFetcher):
    """The fetcher `s3`: `remote.storage.url` is `s3://bucket/prefix`, also spelled `s3a`."""

    protocol = "s3"
    extra = "s3"

"""Segments on any filesystem that fsspec knows: SFTP, HDFS, WebDAV, SMB, OSS and what else is installed."""

from __future__ import annotations

from collections.abc import Mapping

import fsspec

from fetchers._composed import ComposedFetcher
from remote_fetch.errors import ConfigError

__all__ = ["FsspecFetcher"]


class FsspecFetcher(ComposedFetcher):
    """The fetcher `fsspec`: the scheme of `remote.storage.url` names the filesystem.

    Options go to the filesystem as they are; those that hold its timeouts have names of its own, and what it does not
    bound itself ends with the reader's deadline.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `ComposedFetcher.configure`."""
        scheme, found, _ = configs.get("remote.storage.url", "").partition("://")
        if found and scheme not in (*fsspec.available_protocols(), *fsspec.registry):
            raise ConfigError(f"fsspec knows no filesystem {scheme!r}", key="remote.storage.url")
        self.protocol = scheme if found else "file"
        super().configure(configs)

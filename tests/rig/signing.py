"""A fetcher over a broker's directory that gives `file://` URLs as its signed ones.

Rules of the file:

- The layout gives the names, so that tests see the names that would be signed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fetchers.layouts.kafka_local import KafkaLocalLayout
from fetchers.local import LocalFetcher
from remote_fetch.model import RemoteLogSegmentMetadata

__all__ = ["SigningLocalFetcher"]


class SigningLocalFetcher(LocalFetcher):
    """The fetcher `local` with `sign`."""

    def sign(self, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int) -> Mapping[str, str]:
        """As `ObjectSigner.sign`. Nothing expires."""
        names = KafkaLocalLayout().object_names(metadata)
        return {names[kind]: f"file:///{names[kind]}" for kind in kinds}

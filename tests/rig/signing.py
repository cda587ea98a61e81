"""A fetcher over a broker's directory, which gives `file://` URLs in place of signed URLs.

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
        """As `ObjectSigner.sign`. The URLs do not expire."""
        names = KafkaLocalLayout().object_names(metadata)
        return {names[kind]: f"file:///{names[kind]}" for kind in kinds}

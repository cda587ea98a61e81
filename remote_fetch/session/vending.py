"""Signed URLs of segments' objects, as a session's fetcher makes them, for clients without a key to the storage.

Rules of the file:

- No URL is handed out unless the name of its object belongs to the segment (`formats/object_names.py`). The fetcher
  checks names before it signs them. They are checked here again, because a fetcher may be a plug-in of others.
- A segment without such names gets no URL. That is counted by the caller, and never ends an answer for the others.
- Only options of the layout that are known to be public leave the service. Clients set a plug-in's themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from remote_fetch.config import Config
from remote_fetch.config.settings import is_public_layout_option
from remote_fetch.errors import ConfigError, UnsupportedFormat
from remote_fetch.fetch.spi import ObjectSigner, RemoteStorageFetcher
from remote_fetch.formats.object_names import belongs_to
from remote_fetch.model import OBJECT_KINDS, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

__all__ = ["Signed", "Vendor"]

_DEFAULT_LAYOUT = "kafka_local"
_PARTITION = TopicIdPartition(Uuid(bytes(range(1, 17))), "a.topic-of_the-check", 7)
_MADE_UP = RemoteLogSegmentMetadata(RemoteLogSegmentId(_PARTITION, Uuid(bytes(range(17, 33)))), 42, 99, 1024)
"""A segment that does not exist, to see which names the layout gives."""
_LOCATION = f"{_PARTITION.topic_id}/{_MADE_UP.segment_id.id}.log"
_MADE_UP_LOCATED = replace(_MADE_UP, custom_metadata=_LOCATION.encode())
"""The same for a layout that takes names from custom metadata (KIP-917)."""
_CHECK_S = 60


@dataclass(frozen=True, slots=True, repr=False)
class Signed:
    """URLs by the names of objects, and the reason why there are fewer than were asked for. URLs are secrets."""

    urls: Mapping[str, str]
    refused: str | None = None


class Vendor:
    """Signs with one fetcher. Thread-safe, as the fetcher is."""

    def __init__(self, fetcher: RemoteStorageFetcher, config: Config) -> None:
        self._fetcher = fetcher
        self._config = config

    def check(self) -> None:
        """Raise ConfigError if this storage cannot sign, or if its names do not show which segment an object is of.

        Also raises the errors of a fetcher. Names from custom metadata are checked again for each segment.
        """
        if not isinstance(self._fetcher, ObjectSigner):
            raise ConfigError(
                f"the fetcher {type(self._fetcher).__name__} cannot sign URLs, so it cannot vend access",
                key="remote.storage.url",
                hint="Set remote.storage.url to a bucket (s3://, gs://, az://), or name a fetcher with `sign`",
            )
        try:
            signed = self._sign(self._fetcher, _MADE_UP, OBJECT_KINDS, _CHECK_S)
        except UnsupportedFormat:
            signed = self.sign(_MADE_UP_LOCATED, OBJECT_KINDS, _CHECK_S)
        if signed.refused is not None or not signed.urls:
            raise ConfigError(
                f"no access can be vended: {signed.refused or 'the fetcher signs nothing'}",
                key="remote.storage.layout",
                hint="A name needs the segment's id, and the topic's id or its name with the partition",
            )

    def layout(self) -> tuple[str, dict[str, str]]:
        """The name of the layout, and those of its options that are public, without `remote.storage.layout.`."""
        default: str = getattr(self._fetcher, "default_layout", _DEFAULT_LAYOUT)
        options = {name: value for name, value in sorted(self._config.layout.items()) if is_public_layout_option(name)}
        return self._config.settings.storage_layout or default, options

    def sign(self, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int) -> Signed:
        """URLs for GET of a segment's objects of these kinds. Raises ConfigError and the errors of a fetcher."""
        if not isinstance(self._fetcher, ObjectSigner):
            raise ConfigError(f"the fetcher {type(self._fetcher).__name__} cannot sign URLs")
        try:
            return self._sign(self._fetcher, metadata, kinds, expires_s)
        except (ConfigError, UnsupportedFormat) as error:
            return Signed({}, error.message)

    def _sign(
        self, signer: ObjectSigner, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int
    ) -> Signed:
        urls = signer.sign(metadata, kinds, expires_s)
        own = {name: url for name, url in urls.items() if belongs_to(name, metadata)}
        if len(own) == len(urls):
            return Signed(own)
        strange = next(name for name in urls if name not in own)
        return Signed(own, f"the object name {strange[:200]!r} does not show that it belongs to the segment")

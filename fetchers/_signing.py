"""Signed URLs of a segment's objects: which objects, and for how long.

Rules of the file:

- The layout names the objects. `belongs_to` has to hold for each name, whatever layout it is.
- A URL permits GET of one object. Who holds it may read that object until it expires, so minutes are meant.
- URLs are secrets. No message shows one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, runtime_checkable

from fetchers.layouts.naming import checked_names
from remote_fetch.errors import ConfigError, UnsupportedFormat
from remote_fetch.fetch.spi import Layout, ObjectNamer, ObjectStore
from remote_fetch.model import OBJECT_KINDS, RemoteLogSegmentMetadata

__all__ = ["MAX_EXPIRY_S", "SigningStore", "cannot_sign", "names_to_sign"]

MAX_EXPIRY_S = 7 * 24 * 3600
"""The longest life of a URL: Signature Version 4 of S3 and of Google Cloud Storage takes no more."""


@runtime_checkable
class SigningStore(Protocol):
    """Optional, on an object store: what signs URLs of its objects."""

    def sign(self, names: Sequence[str], expires_s: int) -> Mapping[str, str]:
        """A URL for each name: GET, this object alone, for at most `expires_s` seconds. Raises as ObjectSigner."""


def names_to_sign(
    layout: Layout, layout_name: str, store: ObjectStore, metadata: RemoteLogSegmentMetadata, kinds: Collection[str]
) -> list[str]:
    """The names of the objects of these kinds, and of what the layout needs to read them, each once.

    Raises ConfigError for a kind that Kafka does not have and for a layout that does not name objects, and the errors
    of `ObjectNamer.object_names`.
    """
    unknown = set(kinds).difference(OBJECT_KINDS)
    if unknown:
        raise ConfigError(f"{min(unknown)!r} is no kind of object: give some of {', '.join(sorted(OBJECT_KINDS))}")
    if not isinstance(layout, ObjectNamer):
        raise ConfigError(
            f"the layout {layout_name!r} does not name objects for signing (it has no object_names)",
            key="remote.storage.layout",
        )
    names = layout.object_names(metadata, store)
    wanted = {kind: name for kind, name in names.items() if kind in kinds or kind not in OBJECT_KINDS}
    if not any(kind in kinds for kind in wanted):
        raise UnsupportedFormat(f"the layout {layout_name!r} keeps no object of the kinds {', '.join(sorted(kinds))}")
    return list(dict.fromkeys(checked_names(wanted, metadata).values()))


def cannot_sign(fetcher: str) -> ConfigError:
    """The error of a fetcher whose storage has no signatures."""
    return ConfigError(
        f"the fetcher {fetcher!r} cannot sign URLs",
        key="remote.storage.url",
        hint="The fetchers s3, gcs and azure can: set remote.storage.url to s3://, gs:// or az://",
    )

"""Segments whose location stands in their own custom metadata (KIP-917), as KIP-1254 prefers it: signed or not.

    https://bucket.example/tier/orders-0/00000000000000000042.log?X-Amz-Signature=...
    {"log": "orders-0/42.log", "offset": "orders-0/42.index", "transaction": null}

Rules of the file:

- Custom metadata is UTF-8: the location of the log, or a JSON object with one location for each file.
- A location that does not lie below `remote.storage.url`, or a root of `remote.storage.roots`, is refused.
- A path of this machine has no query: a question mark in it is a character as any other.
- The query of a URL may be a signature. No message shows it, and errors lose their causes, which may show it.
- A refusal is StorageDenied. The scan then looks for a newer location, once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from fetchers._secrets import hidden
from fetchers.layouts.naming import SUFFIXES, checked_names, read_bounded_index
from fetchers.layouts.options import layout_options
from remote_fetch.errors import RemoteFetchError, UnsupportedFormat
from remote_fetch.fetch.spi import ObjectStore, SizedStore, SizedUrlStore, UrlStore
from remote_fetch.hosts import is_path, shown_url
from remote_fetch.model import OBJECT_KINDS, Buffer, IndexType, RemoteLogSegmentMetadata

__all__ = ["Locations", "UrlLayout", "parse_locations"]

T = TypeVar("T")

_LOG = "log"
_MAX_METADATA_BYTES = 64 << 10
_USER = re.compile(r"(https?://)[^/#]*@")
"""The beginning of an HTTP URL with a user. Other URLs may have a container there."""


class Locations(dict[str, str | None]):
    """The location of each file of a segment. None: there is no such file. A missing key: not known. Never printed."""

    def __repr__(self) -> str:
        return f"Locations({', '.join(sorted(self))})"


class UrlLayout:
    """The layout `url`. It has no options."""

    def __init__(self) -> None:
        self._root = ""
        self._roots: Mapping[str, ObjectStore] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        """As `Layout.configure`."""
        layout_options(configs).refuse_unknown((), layout="url")
        self._root = _folder(configs.get("remote.storage.url", ""))

    def take_roots(self, roots: Mapping[str, ObjectStore]) -> None:
        """As `RootedLayout.take_roots`."""
        self._roots = {_folder(url): store for url, store in roots.items()}

    def read_segment(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> Buffer:
        """As `Layout.read_segment`. Raises UnsupportedFormat if the metadata has no location."""
        return self._get(store, self._log_of(metadata), start, end)

    def segment_size(self, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `SizedLayout.segment_size`: the object is the segment. Raises UnsupportedFormat as `read_segment`."""
        place = self._place(store, self._log_of(metadata))
        if place.is_signed and isinstance(place.store, SizedUrlStore):
            return _unsigned(place, place.store.url_size)
        if not place.is_signed and isinstance(place.store, SizedStore):
            return _unsigned(place, place.store.size)
        return None

    def read_index(
        self, store: ObjectStore, metadata: RemoteLogSegmentMetadata, index_type: IndexType
    ) -> Buffer | None:
        """As `Layout.read_index`. Raises UnsupportedFormat for transactions whose index may be anywhere."""
        locations = parse_locations(metadata.custom_metadata, self._has_query)
        if index_type.value not in locations:
            if index_type is IndexType.TRANSACTION and not metadata.txn_index_empty:
                raise UnsupportedFormat(
                    "the custom metadata does not say where the transaction index is, nor that there is none",
                    hint="Only a broker can tell which records were aborted",
                )
            return None
        location = locations[index_type.value]
        if location is None:
            return None
        return read_bounded_index(lambda start, end: self._get(store, location, start, end), shown_url(location))

    def list_segments(self, store: ObjectStore, topic: str | None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `Layout.list_segments`: locations stand in metadata records. Raises UnsupportedFormat."""
        raise UnsupportedFormat(
            "the layout 'url' cannot list segments: the brokers' metadata says where they are",
            hint="Set bootstrap.servers, or remote.locator=snapshot",
        )

    def object_names(self, metadata: RemoteLogSegmentMetadata, store: ObjectStore | None = None) -> Mapping[str, str]:
        """As `ObjectNamer.object_names`: locations without a query that lie below the root and belong to the segment.

        Raises UnsupportedFormat for any other location: custom metadata may name every object of the storage.
        """
        names: dict[str, str] = {}
        for kind, location in parse_locations(metadata.custom_metadata, self._has_query).items():
            if location is None:
                continue
            if self._has_query(location):
                raise UnsupportedFormat(
                    f"the location {kind!r} in the custom metadata has a query: it is signed already",
                    object_name=shown_url(location),
                )
            names[kind] = self._below_own_root(location)
        return checked_names(names, metadata)

    def _get(self, store: ObjectStore, location: str, start: int, end: int) -> Buffer:
        place = self._place(store, location)
        get = place.store.get_url if place.is_signed and isinstance(place.store, UrlStore) else place.store.get
        return _unsigned(place, lambda name: get(name, start, end))

    def _place(self, store: ObjectStore, location: str) -> _Place:
        """The object that a location names. Raises UnsupportedFormat for a location that is not to be followed."""
        root = self._root_of(location)
        chosen = store if root == self._root else self._roots[root]
        has_query = self._has_query(location)
        path = location.partition("?")[0] if has_query else location
        name = _without_file(path).removeprefix(root)
        if _leads_elsewhere(name):
            raise UnsupportedFormat(
                "a segment's location does not lie below remote.storage.url, nor below a root of remote.storage.roots",
                object_name=shown_url(path),
                hint="If that store is yours, add the URL of its folder to remote.storage.roots",
            )
        if not has_query:
            if isinstance(chosen, UrlStore) and path.startswith(root):
                name = unquote(name)  # the store encodes names for its URLs
            return _Place(chosen, name, location, is_local=self._is_local(location))
        if isinstance(chosen, UrlStore) and path.startswith(root):
            # The URL was signed with its spaces sent so.
            return _Place(chosen, location.replace(" ", "%20"), location, is_signed=True)
        raise UnsupportedFormat(
            "a segment's location is a signed URL, which only the fetcher 'http' reads",
            object_name=shown_url(path),
            hint="Set remote.storage.url to the https:// URL that the locations begin with",
        )

    def _below_own_root(self, path: str) -> str:
        """The name below `remote.storage.url` of a location without its query. Raises UnsupportedFormat elsewhere."""
        name = _without_file(path).removeprefix(self._root)
        if _leads_elsewhere(name):
            raise UnsupportedFormat(
                "a segment's location does not lie below remote.storage.url", object_name=shown_url(path)
            )
        return name

    def _root_of(self, location: str) -> str:
        """The longest root that a location lies below. Other locations are relative to `remote.storage.url`."""
        path = _without_file(location)
        return max(
            (known for known in (*self._roots, self._root) if path.startswith(known)), key=len, default=self._root
        )

    def _is_local(self, location: str) -> bool:
        """Whether a location is a path of this machine: a path, below a root that is one."""
        return is_path(location) and is_path(self._root_of(location))

    def _has_query(self, location: str) -> bool:
        """Whether a location has a query, which may be a signature. A path of this machine has none."""
        return "?" in location and not self._is_local(location)

    def _log_of(self, metadata: RemoteLogSegmentMetadata) -> str:
        location = parse_locations(metadata.custom_metadata, self._has_query).get(_LOG)
        if location is None:
            raise UnsupportedFormat("the custom metadata does not say where the log is")
        return location


class _Place(NamedTuple):
    """The object `name` of a store, or the URL that carries its own permission. `location` may be such a URL too.

    `is_local`: `location` is a path of this machine, which may be shown whole.
    """

    store: ObjectStore
    name: str
    location: str
    is_signed: bool = False
    is_local: bool = False


def _leads_elsewhere(name: str) -> bool:
    """Whether a name leads out of its root: a part of it is . or .., or empty as in a URL and an absolute path."""
    return bool({"", ".", ".."} & set(unquote(name).split("/")))


def _folder(url: str) -> str:
    """A root as the beginning of the locations below it, which lack its user and password.

    The slash at its end keeps out names that go on.
    """
    place = url if is_path(url) else _USER.sub(r"\1", url.partition("?")[0])
    return _without_file(place).rstrip("/") + "/"


def _without_file(path: str) -> str:
    """`file:///folder` and `/folder` are the same place."""
    return path.removeprefix("file://") if path.startswith("file:///") else path


def _unsigned(place: _Place, ask: Callable[[str], T]) -> T:
    """The answer for the object of a place. Raises the errors of the store, without what is signed."""
    try:
        return ask(place.name)
    except RemoteFetchError as error:
        if place.is_local:
            error.object_name = place.location
            raise
        raise hidden(error, place.location) from None


def parse_locations(custom_metadata: bytes | None, has_query: Callable[[str], bool]) -> Locations:
    """The locations of a segment's files, from its custom metadata. Raises UnsupportedFormat.

    `has_query` tells whether a location has a query.
    """
    if not custom_metadata:
        raise UnsupportedFormat("the segment has no custom metadata, where the layout 'url' looks for its location")
    if len(custom_metadata) > _MAX_METADATA_BYTES:
        raise UnsupportedFormat(f"custom metadata of {len(custom_metadata)} bytes is no location")
    try:
        text = custom_metadata.decode("utf-8")
        document: Any = json.loads(text) if text.lstrip().startswith("{") else text
    except (ValueError, RecursionError):
        raise UnsupportedFormat("the custom metadata is neither a location nor a JSON object of locations") from None
    if isinstance(document, str):
        return _beside(document, has_query)
    found = Locations((name, document[name]) for name in OBJECT_KINDS if name in document)
    for name, value in found.items():
        if not isinstance(value, str | None):
            raise UnsupportedFormat(f"the location {name!r} in the custom metadata is no text")
        if value is not None:
            _check(value, f"the location {name!r} in the custom metadata")
    return found


def _beside(location: str, has_query: Callable[[str], bool]) -> Locations:
    """The log, and its indexes under the names that brokers give them, if they can be named at all."""
    _check(location, "the location in the custom metadata")
    found = Locations({_LOG: location})
    if location.endswith(".log") and not has_query(location):
        found.update({name: location.removesuffix(".log") + suffix for name, suffix in SUFFIXES.items()})
    return found


def _check(location: str, what: str) -> None:
    """Refuse what names no object. The character is named and the location not shown, which may be signed."""
    if not location.strip():
        raise UnsupportedFormat(f"{what} is empty")
    for position, character in enumerate(location):
        if not character.isprintable():
            raise UnsupportedFormat(
                f"{what} has U+{ord(character):04X} at character {position}, which cannot be printed"
            )

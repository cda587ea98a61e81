"""A fetcher is a layout over an fsspec filesystem: the one place where the two meet.

Rules of the file:

- A fetcher has a filesystem of its own. No other fetcher shares it, fsspec does not cache it, and it keeps no listings.
- Values of options are secrets. No message shows them.
- A built-in fetcher is a subclass. It names its filesystem, the extra that brings it, and the SDK's words for timeouts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import Parameter
from typing import Any, cast

import fsspec

from fetchers._identity import Identities
from fetchers._logging import hold_back_debug
from fetchers._options import OPTIONS, Timeouts, check_names, named_parameters, options_of, timeouts_of
from fetchers._roots import ROOTS, Roots
from fetchers._signing import MAX_EXPIRY_S, SigningStore, cannot_sign, names_to_sign
from fetchers._store import FsspecStore
from fetchers._survey import surveyed
from remote_fetch.errors import ConfigError, MissingExtra, RemoteFetchError
from remote_fetch.failures.causes import as_cause
from remote_fetch.failures.store_errors import failure_of
from remote_fetch.fetch.inventory import ExpectedObject, InventoryLayout
from remote_fetch.fetch.plugins import LAYOUTS_GROUP, NOT_INSTALLED, entry_point, installed_names
from remote_fetch.fetch.spi import (
    ChunkedLayout,
    Layout,
    ObjectInfo,
    ObjectStore,
    PartitionLayout,
    RootedLayout,
    SizedLayout,
    SizedStore,
    StoredSizer,
)
from remote_fetch.hosts import is_path, shown_url
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, Survey, TopicIdPartition

__all__ = ["ComposedFetcher", "LayoutFetcher", "load_layout"]

_URL = "remote.storage.url"
_MISTAKES = (AttributeError, TypeError, ValueError, KeyError)
"""The errors of options. With a failure as its cause, such an error is that failure: smbprotocol's ValueError is one of
the connection, gcsfs's one of the server of tokens."""


class LayoutFetcher(ABC):
    """Reads segments by a layout from a store. `_layout` is None until it is known."""

    _layout: Layout | None = None

    @abstractmethod
    def _opened(self, metadata: RemoteLogSegmentMetadata) -> tuple[Layout, ObjectStore]:
        """The layout, and the store that has the segment's objects. Raises ConfigError if the fetcher is not open."""

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
    ) -> Buffer:
        """As `RemoteStorageFetcher.fetch_log_segment`. Raises ValueError for positions that the reader never gives."""
        if start_position < 0 or end_position < -1:  # some stores would count them from the end of the object
            raise ValueError(f"bytes [{start_position}, {end_position}) of a segment: no position is below 0")
        layout, store = self._opened(metadata)
        return layout.read_segment(store, metadata, start_position, end_position)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> Buffer | None:
        """As `RemoteStorageFetcher.fetch_index`."""
        layout, store = self._opened(metadata)
        return layout.read_index(store, metadata, index_type)

    def size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `SegmentSizer.size`."""
        layout, store = self._opened(metadata)
        return layout.segment_size(store, metadata) if isinstance(layout, SizedLayout) else None

    def stored_size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `StoredSizer.stored_size`."""
        return self._layout.stored_size(metadata) if isinstance(self._layout, StoredSizer) else None


def _needed(kind: Any) -> set[str]:
    """The options of a filesystem that have no default."""
    return {each.name for each in named_parameters(kind.__init__) if each.default is Parameter.empty}


class ComposedFetcher(LayoutFetcher):
    """A RemoteStorageFetcher and SegmentLister made of a layout and an fsspec filesystem.

    A subclass names the filesystem (`protocol`), the extra of remote-fetch that brings it (`extra`), and the store that
    reads from it (`store_type`). `default_layout` is the layout if none is configured, and `options` says how the
    filesystem is opened. `hands_options_on`: options that the filesystem's classes do not name are handed to it
    all the same, because an SDK behind it may know them. Otherwise they are refused here.
    """

    protocol = "file"
    extra: str | None = None
    store_type: type[FsspecStore] = FsspecStore
    default_layout = "kafka_local"
    hands_options_on = False

    def __init__(self) -> None:
        self._configs: Mapping[str, str] = {}
        self._store: ObjectStore | None = None
        self._roots: Roots | None = None
        self._identities = Identities()
        self._is_closed = False

    def configure(self, configs: Mapping[str, str]) -> None:
        """Open the filesystem and the layout. Raises ConfigError, MissingExtra."""
        if not configs.get(_URL):
            raise ConfigError(f"the fetcher needs {_URL}", key=_URL)
        hold_back_debug()
        self._configs = configs
        self._layout = load_layout(self._layout_name())
        self._layout.configure(configs)
        if configs.get(ROOTS):
            self._open_roots(self._layout)
        try:
            self._store = self.open_store(configs)
        except BaseException:
            if self._roots is not None:
                self._roots.close()
            raise

    def _open_roots(self, layout: Layout) -> None:
        if not isinstance(layout, RootedLayout):
            raise ConfigError(
                f"{ROOTS} is for layouts whose metadata says where a segment lies, and {self._layout_name()!r} is none",
                key=ROOTS,
                hint="Set remote.storage.layout=url, or leave the roots out",
            )
        self._roots = Roots(self._configs, type(self))
        layout.take_roots(self._roots.stores)

    @property
    def layout_name(self) -> str | None:
        """The name of the layout's class; None before `configure`."""
        return None if self._layout is None else type(self._layout).__name__

    def refresh_credentials(self) -> None:
        """Open another filesystem, whose SDK looks for credentials again. Reads under way keep the old one."""
        layout, _ = self._opened()
        self._store = self.open_store(self._configs)
        if self._is_closed:  # by another thread, while credentials were looked for
            self.close()
        elif self._roots is not None and isinstance(layout, RootedLayout):
            self._roots.refresh_credentials()
            layout.take_roots(self._roots.stores)

    def open_store(self, configs: Mapping[str, str]) -> ObjectStore:
        """The store below the configured URL, with the fetcher's identities. Raises ConfigError, MissingExtra."""
        root = self.root_of(configs[_URL])  # first: an SDK may look for credentials for many seconds
        return self.store_type(self.open_filesystem(configs), root, timeouts_of(configs).read_s, self._identities)

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """How the filesystem is opened: `given` (see `options_of`), and in its SDK's own terms both timeouts.

        Retries are this package's: a subclass cuts its SDK's own down.
        """
        return given

    def open_filesystem(self, configs: Mapping[str, str]) -> Any:
        """A filesystem of this fetcher's own. Raises ConfigError for options that it refuses, MissingExtra, and the
        errors of a fetcher if it asks the store at once.
        """
        given = options_of(configs)
        options: Mapping[str, Any] | None = None
        try:
            kind = self._filesystem_class()
            of_url = kind._get_kwargs_from_urls(configs.get(_URL, ""))
            options = self.options({**of_url, **given}, timeouts_of(configs))
            if not self.hands_options_on:
                check_names([name for name in given if name in options], kind, self.protocol)
            filesystem = kind(**options, skip_instance_cache=True)
        except RemoteFetchError:
            raise
        except Exception as error:  # some ask the store as soon as they are made
            if isinstance(error, _MISTAKES) and (error.__cause__ is None or failure_of(error.__cause__, "") is None):
                what = f"does not take the options {sorted(given)}" if given else "cannot be opened without options"
                if options is not None and (lacking := _needed(kind) - options.keys()):
                    what = f"needs {', '.join(OPTIONS + name for name in sorted(lacking))}"
                mistake = ConfigError(f"the {self.protocol!r} filesystem {what}", key=OPTIONS + "*")
                raise mistake from as_cause(error)
            # No object was asked for: a file that is not there is a key's, and the answer is none about an index.
            failure = failure_of(error, shown_url(configs.get(_URL, "")), has_codes=True)
            if failure is None:
                raise
            raise failure from as_cause(error)
        listings = getattr(filesystem, "dircache", None)
        if listings is not None:  # an option would do, but for filesystems that hand every option on
            listings.use_listings_cache = False
        return filesystem

    def _filesystem_class(self) -> Any:
        try:
            return fsspec.get_filesystem_class(self.protocol)
        except ImportError as error:
            raise MissingExtra(f"{self.protocol}:// cannot be read: {error}", extra=self.extra) from error

    def root_of(self, url: str) -> str:
        """The path that object names are relative to. Raises ConfigError if the URL has none."""
        try:
            return cast(str, self._filesystem_class()._strip_protocol(url))
        except _MISTAKES as error:  # of filesystems inside of others
            raise ConfigError(f"the {self.protocol!r} filesystem cannot be opened by a URL alone", key=_URL) from error

    def _opened(self, metadata: RemoteLogSegmentMetadata | None = None) -> tuple[Layout, ObjectStore]:
        if self._layout is None or self._store is None:
            raise ConfigError("the fetcher is closed, or was never configured")
        return self._layout, self._store

    def opened_store(self) -> ObjectStore:
        """The store below the URL. Raises ConfigError before `configure` and after `close`."""
        return self._opened()[1]

    def chunk_size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        """As `ChunkSizer.chunk_size`."""
        layout, store = self._opened()
        return layout.chunk_size(store, metadata) if isinstance(layout, ChunkedLayout) else None

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        """As `SegmentLister.list_segments`."""
        layout, store = self._opened()
        return layout.list_segments(store, topic)

    def list_partitions(self, topic: str | None = None) -> Iterable[TopicIdPartition] | None:
        """As `PartitionLister.list_partitions`."""
        layout, store = self._opened()
        return layout.list_partitions(store, topic) if isinstance(layout, PartitionLayout) else None

    def list_partition(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """As `PartitionLister.list_partition`."""
        layout, store = self._opened()
        if isinstance(layout, PartitionLayout):
            return layout.list_partition(store, partition)
        return (one for one in layout.list_segments(store, partition.topic) if one.topic_id_partition == partition)

    def list_objects(self) -> Iterator[ObjectInfo]:
        """As `ObjectInventory.list_objects`."""
        return self._opened()[1].list()

    def expected_objects(self, metadata: RemoteLogSegmentMetadata) -> Sequence[ExpectedObject]:
        """As `ObjectInventory.expected_objects`."""
        return self._inventory().expected_objects(self._opened()[1], metadata)

    def segment_of(self, name: str) -> RemoteLogSegmentId | None:
        """As `ObjectInventory.segment_of`. Raises ConfigError if the layout cannot tell."""
        return self._inventory().segment_of(name)

    def object_size(self, name: str) -> int | None:
        """As `ObjectInventory.object_size`."""
        store = self._opened()[1]
        return store.size(name) if isinstance(store, SizedStore) else None

    def _inventory(self) -> InventoryLayout:
        layout = self._opened()[0]
        if not isinstance(layout, InventoryLayout):
            raise ConfigError(
                f"the layout {self._layout_name()!r} does not tell which objects a segment has (it has no "
                "expected_objects)",
                key="remote.storage.layout",
            )
        return layout

    def sign(self, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int) -> Mapping[str, str]:
        """As `ObjectSigner.sign`. Raises ConfigError if this storage has no signatures."""
        layout, store = self._opened()
        if not isinstance(store, SigningStore):
            raise cannot_sign(self.protocol if self.extra is None else self.extra)
        if expires_s < 1:
            raise ConfigError(f"a URL that expires after {expires_s} s: at least 1 is needed")
        names = names_to_sign(layout, self._layout_name(), store, metadata, kinds)
        return store.sign(names, min(expires_s, MAX_EXPIRY_S))

    def survey(self) -> Survey:
        """As `StorageSurveyor.survey`."""
        layout, store = self._opened()
        url = self._configs[_URL]
        whole = url if is_path(url) else url.partition("?")[0]
        base = whole if "://" in url else self.root_of(url)
        if not isinstance(store, FsspecStore):
            return Survey(shown_url(base))
        name = self._layout_name()
        return surveyed(store, whole, base, name, {**_layouts(), name: layout})

    def _layout_name(self) -> str:
        return self._configs.get("remote.storage.layout") or self.default_layout

    def close(self) -> None:
        """As `RemoteStorageFetcher.close`."""
        self._is_closed = True
        self._store = None
        if self._roots is not None:
            self._roots.close()


def _layouts() -> dict[str, Layout]:
    """The layouts that are installed, as they are before `configure`."""
    found: dict[str, Layout] = {}
    for name in installed_names(LAYOUTS_GROUP):
        with suppress(ConfigError):
            found[name] = load_layout(name)
    return found


def load_layout(name: str) -> Layout:
    """The layout of that name, before `configure`. Raises ConfigError if there is none."""
    entry = entry_point(LAYOUTS_GROUP, name)
    if entry is None:
        names = installed_names(LAYOUTS_GROUP)
        raise ConfigError(
            f"no layout is called {name!r}; installed are {', '.join(names) or 'none'}",
            key="remote.storage.layout",
            hint=None if names else NOT_INSTALLED,
        )
    try:
        return cast(Layout, entry.load()())
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot load the layout {name!r}: {error}", key="remote.storage.layout") from error

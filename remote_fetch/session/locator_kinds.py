"""Opens locators: over listings of a store, over saved timelines, and over answers of leaders. Saves timelines, too.

Rules of the file:

- The locator over listings reads segments with the deadlines and counters of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remote_fetch.config.files import read_file
from remote_fetch.config.settings import Settings
from remote_fetch.errors import ConfigError, RemoteFetchError
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentLister
from remote_fetch.locate.listing import ListingLocator
from remote_fetch.locate.locator import KnownTimelines, Locator
from remote_fetch.locate.snapshot import SnapshotOrigin, dump_timelines, load_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata, Uuid
from remote_fetch.observe import Notice, Observer, SegmentScanned, ignore
from remote_fetch.session.file_stores import write_whole
from remote_fetch.session.parallel import all_at_once
from remote_fetch.session.storage import Storage
from remote_fetch.session.surveyor import listings_of

if TYPE_CHECKING:
    from remote_fetch.locate.broker_locator import BrokerLocator
    from remote_fetch.locate.cluster import Cluster
    from remote_fetch.session.brokers import Brokers

__all__ = [
    "beside_brokers",
    "open_broker_locator",
    "open_listing",
    "open_snapshot",
    "save_snapshot",
    "with_real_ends",
]

_ANSWER_TIMEOUT_MS = 5_000
"""Longest wait for where one offset lies. A read goes on through the broker after it."""

_MAX_SNAPSHOT_BYTES = 1 << 30


def open_listing(fetcher: RemoteStorageFetcher, storage: Storage, remark: Observer = ignore) -> ListingLocator:
    """Open a locator over the fetcher's listings. Raises ConfigError if the fetcher cannot list segments."""
    if not isinstance(fetcher, SegmentLister):
        raise ConfigError(
            f"the fetcher {type(fetcher).__name__} cannot list segments",
            key="remote.locator",
            hint="Set bootstrap.servers (-b) and not remote.locator=listing, so that brokers tell the segments. Or use "
            "a fetcher with list_segments",
        )
    listings = listings_of(fetcher, storage.reader.renewal)
    return ListingLocator(listings, _SegmentBytes(storage), all_at_once, remark)


def open_snapshot(settings: Settings) -> KnownTimelines:
    """Open a locator for the timelines that are saved in a file.

    Raises ConfigError if no file is configured or the file cannot be read, CorruptSegment if its content is damaged,
    and UnsupportedFormat if it is not a snapshot of this version.
    """
    key = "remote.locator.snapshot.file"
    name = settings.locator_snapshot_file
    if name is None:
        raise ConfigError(f"remote.locator=snapshot needs {key}", key=key)
    data = read_file(name, key=key, max_bytes=_MAX_SNAPSHOT_BYTES)
    try:
        return KnownTimelines(load_timelines(data)[1])
    except RemoteFetchError as error:
        raise error.at(object_name=name, hint=f"Check {key}") from None


def with_real_ends(measurer: Locator, timeline: Timeline) -> Timeline:
    """The timeline for a reader that takes each end for the real one: ends that are guesses are measured first.

    Raises the errors of a fetcher.
    """
    guessed = [segment for segment in timeline.segments if measurer.end_is_inferred(segment)]
    return measurer.measure(timeline.partition, guessed) if guessed else timeline


def save_snapshot(name: str, timelines: Sequence[Timeline], measurer: Locator) -> None:
    """Write the file of `open_snapshot`. It is private, as custom metadata may hold signed URLs. Raises OSError.

    A reader of the file takes each end for the real one.
    """
    measured = [with_real_ends(measurer, timeline) for timeline in timelines]
    origin = SnapshotOrigin("", Uuid(bytes(16)), 1, ())  # no replay goes on from this file
    path, data = Path(name), dump_timelines(measured, origin=origin)
    if path.exists() and not path.is_file():  # such as /dev/stdout, whose target may have no path of its own
        path.write_bytes(data)
    else:
        write_whole(path.resolve(), data)


def open_broker_locator(settings: Settings, cluster: Cluster, say: Callable[[str], None]) -> BrokerLocator:
    """Open a locator over the answers of partition leaders (KIP-1254). It calls `say` once if it turns itself off.

    Raises ConfigError if the schema cannot be used, or if kafka-python has no counterpart for a client property.
    Raises MissingExtra if kafka-python is not installed.
    """
    from remote_fetch.locate.broker_locator import BrokerLocator  # noqa: PLC0415 - librdkafka is loaded for it
    from remote_fetch.locate.location_channel import LocationChannel  # noqa: PLC0415 - an extra is loaded for it
    from remote_fetch.locate.location_schema import load_schema  # noqa: PLC0415 - as above

    schema = load_schema(settings.locator_schema_file)
    channel = LocationChannel(lambda: cluster.contact_properties, schema, timeout_ms=_ANSWER_TIMEOUT_MS)
    return BrokerLocator(cluster, channel, say=say)


def beside_brokers(located_by: Locator, brokers: Brokers | None, observe: Observer) -> Locator:
    """The locator for a session. If it sees only what is tiered, the brokers tell which partitions a topic has.

    A notice tells if nothing at all is tiered.
    """
    if brokers is None or not isinstance(located_by, (ListingLocator, KnownTimelines)):
        return located_by
    from remote_fetch.locate.described_locator import DescribedLocator  # noqa: PLC0415 - librdkafka is loaded for it

    return DescribedLocator(located_by, brokers.cluster, lambda text: observe(Notice(text, is_warning=True)))


class _SegmentBytes:
    """Reads segments for the locator over listings, with the deadlines and counters of a session."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.max_batch_bytes = storage.settings.max_batch_bytes
        self.range_bytes = storage.reader.range_bytes

    def read_bytes(self, segment: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> memoryview:
        return self._storage.reader.read(RangeRequest(segment, start_position, end_position))

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        return self._storage.reader.read_index(segment, index_type)

    def read_without_index(self, segment: RemoteLogSegmentMetadata, reason: str) -> None:
        self._storage.observe(SegmentScanned(segment.topic_id_partition, IndexType.OFFSET, reason))

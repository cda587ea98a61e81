"""One reader's open parts: the fetcher, the ranges, the locator, the counters; opened together, closed together.

Rules of the file: nothing is shared between sessions; whoever opens a session closes it; a session that fails to open
leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from remote_fetch.config import Config
from remote_fetch.decode.columns import is_compiled
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.deadlines import RetryPolicy
from remote_fetch.fetch.readahead import RangeReader, RangeRequest
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentLister
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.listing import ListingLocator
from remote_fetch.locate.locator import KnownTimelines, Locator
from remote_fetch.locate.snapshot import load_timelines
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.observe import Counters, Event, Notice, Observer, SegmentScanned, ignore, log_event
from remote_fetch.read.librdkafka import check_properties

__all__ = ["Session"]

_MAX_SNAPSHOT_BYTES = 1 << 30
_INTERPRETED = (
    "the record decoder runs interpreted, a hundred times slower than compiled: "
    "no C compiler was at hand when remote-fetch was installed"
)


class Session:
    """A configured reader. `counters` adds up everything it does; `observer` hears of it too."""

    def __init__(self, config: Config, fetcher: RemoteStorageFetcher, observer: Observer = ignore) -> None:
        self.config = config
        self.counters = Counters()
        self._observer = observer
        self.reader = RangeReader(
            fetcher,
            RetryPolicy(config.number("fetch.remote.read.timeout.ms"), config.number("fetch.remote.retry.backoff.ms")),
            max_bytes=config.number("fetch.remote.max.bytes"),
            range_bytes=config.number("fetch.remote.range.bytes"),
            observer=self.observe,
        )
        self.codecs = Codecs(max_bytes=config.number("fetch.remote.max.decompressed.bytes"))
        try:
            self.locator = _locator(config, fetcher, self.reader, self.observe)
        except BaseException:
            self.reader.close()
            raise
        if not is_compiled():
            self.observe(Notice(_INTERPRETED, is_warning=True))

    @classmethod
    def open(cls, config: Mapping[str, Any] | Config, observer: Observer = ignore) -> Session:
        """Open what a configuration names. Raises ConfigError and what the fetcher raises when it is configured."""
        parsed = config if isinstance(config, Config) else Config.parse(config)
        check_properties(parsed.librdkafka)
        if parsed.text("remote.locator") is None and "bootstrap.servers" in parsed.librdkafka:
            raise ConfigError(
                "locations from a broker's metadata topic are not read in this release",
                key="remote.locator",
                hint="Set remote.locator=listing (or leave bootstrap.servers out) to read the bucket alone",
            )
        return cls(parsed, load_fetcher(parsed), observer)

    def observe(self, event: Event) -> None:
        """Hand an event to the counters, the log and the user's observer."""
        self.counters(event)
        log_event(event)
        self._observer(event)

    def close(self) -> None:
        """Cancel what is under way and release everything. May be called twice."""
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _SegmentBytes:
    """What the listing locator reads with, by way of this session's deadlines and counters."""

    def __init__(self, reader: RangeReader, observe: Observer) -> None:
        self._reader = reader
        self._observe = observe
        self.range_bytes = reader.range_bytes

    def read_bytes(self, segment: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> memoryview:
        return self._reader.read(RangeRequest(segment, start_position, end_position))

    def read_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        return self._reader.read_index(segment, index_type)

    def read_without_index(self, segment: RemoteLogSegmentMetadata, reason: str) -> None:
        self._observe(SegmentScanned(segment.topic_id_partition, IndexType.OFFSET, reason))


def _locator(config: Config, fetcher: RemoteStorageFetcher, reader: RangeReader, observe: Observer) -> Locator:
    if config.text("remote.locator") == "snapshot":
        return KnownTimelines(_saved_timelines(config))
    if not isinstance(fetcher, SegmentLister):
        raise ConfigError(
            f"the fetcher {type(fetcher).__name__} cannot list segments",
            key="remote.locator",
            hint="Choose another locator than listing, or a fetcher with list_segments",
        )
    return ListingLocator(fetcher.list_segments, _SegmentBytes(reader, observe))


def _saved_timelines(config: Config) -> tuple[Timeline, ...]:
    key = "remote.locator.snapshot.file"
    name = config.text(key)
    if name is None:
        raise ConfigError(f"remote.locator=snapshot needs {key}", key=key)
    try:
        with open(name, "rb") as file:
            data = file.read(_MAX_SNAPSHOT_BYTES)
    except OSError as error:
        raise ConfigError(f"{key}: {error}", key=key) from error
    return load_timelines(data)[1]

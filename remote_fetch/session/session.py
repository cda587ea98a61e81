"""Opens and closes the parts of one reader together: the fetcher, the range reader, the locator, the counters.

Rules of the file:

- Sessions share a budget if they have the same limits, and those of consumers a replay of the metadata topic. No more.
- The caller that opens a session closes it. If opening fails, nothing stays open.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from remote_fetch.config import Config
from remote_fetch.decode.run_decoder import is_native
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.broker_file import complete
from remote_fetch.fetch.inventory import ObjectInventory
from remote_fetch.fetch.readahead import RangeReader
from remote_fetch.fetch.registry import load_fetcher, no_storage_error
from remote_fetch.fetch.retry_policy import RetryPolicy
from remote_fetch.fetch.sizes import SegmentSizes
from remote_fetch.fetch.spi import ChunkSizer, RemoteStorageFetcher, StoredSizer
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.locator import Locator, SharedLocator, SharedStepwiseLocator, StepwiseLocator
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import IsolationLevel, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.observe import Counters, Event, MetadataUnusable, Notice, Observer, ignore
from remote_fetch.session.brokers import Brokers, open_brokers
from remote_fetch.session.budgets import BudgetLease
from remote_fetch.session.configured_locator import ConfiguredLocator, Planned
from remote_fetch.session.decode_pool import DecodePool
from remote_fetch.session.event_log import LogObserver
from remote_fetch.session.fallback import ASK_A_BROKER, FallbackRule
from remote_fetch.session.local_logs import LocalLogs
from remote_fetch.session.no_storage import NoStorage
from remote_fetch.session.property_check import check_properties
from remote_fetch.session.service import SERVICE
from remote_fetch.session.storage import Storage
from remote_fetch.session.surveyor import Surveyor
from remote_fetch.session.vending import Vendor

if TYPE_CHECKING:
    from remote_fetch.locate.cluster import Cluster

__all__ = ["IN_PLAIN_PYTHON", "Session"]

_STORAGE_KEYS = ("remote.storage.url", "remote.storage.fetcher.class")
IN_PLAIN_PYTHON = (
    "records are decoded in plain Python, about 100 times slower than natively: "
    "the native decoder was not built (from source it needs a Rust compiler)"
)
"""The notice of a session that decodes in plain Python."""


class Session:
    """A configured reader. `counters` adds up its events, and `observer` gets each event too.

    - `brokers` are the brokers of `bootstrap.servers`. None: no broker is configured, and only the store is read.
    - `storage` reads the objects of segments, and `locator` finds segments. Both may be used from several threads.
    - `stepwise` is the locator if it has to be asked offset by offset, else None.
    - `shared`: several consumers' threads use the session, and they read broker ranges themselves.
    - `local_logs` asks the brokers what their own disks hold.
    - `fallback` decides which offsets the broker reads.
    - `surveyor` tells which objects are at the URL if no segment was found there.
    - `vendor` signs URLs of segments' objects, if the fetcher can.
    - `configured_locator` knows whether the segments are found. `locator` asks it.
    - `planned`: the session reads a plan that another session made.
    - `notices` are warnings about the configuration. They are reported when everything is open.
    """

    def __init__(
        self,
        config: Config,
        fetcher: RemoteStorageFetcher,
        observer: Observer = ignore,
        *,
        shared: bool = False,
        planned: Planned | None = None,
        notices: Sequence[str] = (),
    ) -> None:
        self.config = config
        self._fetcher = fetcher
        self.counters = Counters()
        self._log = LogObserver()
        self._observer = observer
        self._orphans: dict[TopicIdPartition, int] = {}
        self._malformed: dict[Uuid, int] = {}
        self._counting = threading.Lock()  # for `_orphans`, `_malformed`
        settings = config.settings
        self.surveyor = Surveyor(fetcher, self.observe, settings.read_timeout_ms)
        self.vendor = Vendor(fetcher, config)
        self.codecs = Codecs(max_bytes=settings.max_decompressed_bytes)
        self.decode_pool = DecodePool()
        self.brokers: Brokers | None = None
        self._budget = BudgetLease(settings)
        self.reader = RangeReader(
            fetcher,
            RetryPolicy(settings.read_timeout_ms, settings.retry_backoff_ms),
            max_bytes=settings.max_bytes,
            range_bytes=self._budget.range_bytes(settings.range_bytes),
            observer=self.observe,
            budget=self._budget.budget,
        )
        sizes = SegmentSizes(self.reader, self.observe, timeout_ms=settings.read_timeout_ms)
        self.storage = Storage(self.reader, sizes, self.observe, settings)
        self.configured_locator = ConfiguredLocator(config, fetcher, self.storage, shared=shared)
        try:  # what stands above is all that `close` needs
            self.brokers = open_brokers(
                config.librdkafka,
                settings,
                self.observe,
                shared=shared,
                log_starts=None if planned is None else planned.log_starts,
                may_be_cut=planned is None or planned.may_be_cut,
            )
            self.local_logs = LocalLogs(self._cluster, self.observe)
            hint = ASK_A_BROKER if self.brokers is None else None
            self.fallback = FallbackRule(self.observe, self.surveyor.explain, self.brokers, hint=hint)
            located_by = self.configured_locator.open(planned, self.brokers)
            self.stepwise = SharedStepwiseLocator(located_by) if isinstance(located_by, StepwiseLocator) else None
            self.locator: Locator = self.stepwise or SharedLocator(located_by, by_partition=planned is None)
            for text in notices if is_native() else (IN_PLAIN_PYTHON, *notices):
                self.observe(Notice(text, is_warning=True))
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        config: Mapping[str, Any] | Config,
        observer: Observer = ignore,
        *,
        shared: bool = False,
        planned: Planned | None = None,
    ) -> Session:
        """Open the parts that a configuration names. Raises ConfigError and the errors of the fetcher's `configure`."""
        completed = complete(config if isinstance(config, Config) else Config.parse(config))
        parsed = completed.config
        check_properties(parsed.librdkafka, parsed.locator)  # `for_locator` leaves some out
        configured = bool(parsed.given.intersection(_STORAGE_KEYS)) or parsed.settings.locator == SERVICE
        fetcher: RemoteStorageFetcher = NoStorage()
        notices = ["no remote storage is configured: everything comes through the broker"]
        if parsed.settings.locator_url is not None:
            notices[0] += ". To use remote.locator.url set remote.locator=service"
        if configured or "bootstrap.servers" not in parsed.librdkafka:
            fetcher = load_fetcher(parsed)
            notices = [f"not understood of the brokers' file: {text}" for text in completed.unmapped]
        return cls(parsed, fetcher, observer, shared=shared, planned=planned, notices=notices)

    def newest_timeline(
        self, partition: TopicIdPartition, first_offset: int, stop_offset: int, *, isolation: IsolationLevel, most: int
    ) -> Timeline:
        """The timeline after a new lookup, at least as far as a plan of `most` segments of these offsets needs it.

        Raises the errors of the locator.
        """
        if self.stepwise is None:
            return self.locator.refresh(partition)
        return self.stepwise.reach(partition, first_offset, stop_offset, isolation=isolation, most=most)

    @property
    def _cluster(self) -> Cluster | None:
        return None if self.brokers is None else self.brokers.cluster

    @property
    def answered_s(self) -> float:
        """Time of the last answer of the store, a broker or the service (`time.monotonic`); 0 if none has answered."""
        asked = (self.reader, self._cluster, self.configured_locator)
        return max(0.0 if it is None else it.answered_s for it in asked)

    @property
    def asks_local_starts(self) -> bool:
        """Whether brokers are asked where their own disks begin: not if the answer would change nothing.

        A leader that is asked for locations (`stepwise`) gives none for what is on its own disk.
        """
        is_wanted = not self.config.settings.reads_local and not isinstance(self._fetcher, NoStorage)
        return is_wanted and self.brokers is not None and self.stepwise is None

    def local_starts(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        """For each partition, the first offset on a broker's own disk.

        Empty unless `fetch.remote.when` is `not-local`, and if no broker can be asked or no storage is configured. With
        that value the store serves only the offsets that the broker itself would fetch from it (KIP-1254).
        """
        if not self.asks_local_starts:
            return {}
        otherwise = "records that they also have on their own disks come from the store as well"
        found = self.local_logs.ask(partitions, otherwise)
        return {partition: log.start_offset for partition, log in found.items() if log.start_offset is not None}

    def stored_size(self, segment: RemoteLogSegmentMetadata) -> int | None:
        """The bytes of a segment's objects in the store, None if its metadata does not tell: see `StoredSizer`."""
        fetcher = self._fetcher
        return fetcher.stored_size(segment) if isinstance(fetcher, StoredSizer) else None

    def chunk_size(self, segment: RemoteLogSegmentMetadata) -> int | None:
        """As `ChunkSizer.chunk_size`, None if the fetcher has no chunks. Raises the errors of the store."""
        fetcher = self._fetcher
        return fetcher.chunk_size(segment) if isinstance(fetcher, ChunkSizer) else None

    def inventory(self) -> ObjectInventory:
        """The part of the fetcher that tells the objects of the storage. Raises ConfigError if the fetcher cannot."""
        settings = self.config.settings
        if settings.storage_url is None and settings.fetcher_class is None:  # nothing is read, or a service's URLs
            raise no_storage_error()
        if not isinstance(self._fetcher, ObjectInventory):
            raise ConfigError(
                f"the fetcher {type(self._fetcher).__name__} does not tell which objects are in the storage",
                key="remote.storage.fetcher.class",
                hint="It needs the methods of remote_fetch.fetch.inventory.ObjectInventory",
            )
        return self._fetcher

    def note_unusable(self, timeline: Timeline) -> None:
        """Report metadata records that locate no segment, if their number has grown since the last report.

        Malformed records are counted by topic, because their partition cannot be read.
        """
        if not timeline.orphan_updates and not timeline.malformed_records:
            return
        partition = timeline.partition
        with self._counting:
            orphans = timeline.orphan_updates - self._orphans.get(partition, 0)
            malformed = timeline.malformed_records - self._malformed.get(partition.topic_id, 0)
            self._orphans[partition] = timeline.orphan_updates
            self._malformed[partition.topic_id] = timeline.malformed_records
        if orphans > 0 or malformed > 0:
            self.observe(MetadataUnusable(partition, max(orphans, 0), max(malformed, 0)))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Give new credentials to the clients of this session. A metadata cluster with its own user keeps that one."""
        if self.brokers is not None:
            self.brokers.cluster.set_sasl_credentials(username, password)
            self.local_logs.end_rest()
        self.configured_locator.set_sasl_credentials(username, password)

    def observe(self, event: Event) -> None:
        """Hand an event to the counters, the log and the user's observer."""
        self.counters(event)
        self._log(event)
        self._observer(event)

    def close(self) -> None:
        """Cancel what is under way and release everything. May be called twice.

        Each part is closed, also if another one raises. The last error is raised at the end.
        """
        with ExitStack() as parts:  # it calls the last one first
            parts.callback(self._log.close)
            parts.callback(self._budget.give_back)
            parts.callback(self.configured_locator.close)
            if self._cluster is not None:
                parts.callback(self._cluster.close)
            parts.callback(self.configured_locator.finish)
            parts.callback(self.decode_pool.close)
            parts.callback(self.reader.close)
            parts.callback(self.surveyor.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

"""The locator of a session: opens the configured one, knows whether it finds segments, and closes its parts.

Rules of the file:

- A locator that fails does not end a read: the reason is kept and reported, and the broker answers.
- Nothing is opened before `open`. If `open` fails, `close` still closes all parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, ErrorKind, Unlocatable
from remote_fetch.fetch.registry import no_storage_error
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.locate.locator import Locator, PlannedLocator
from remote_fetch.locate.timeline import Timeline
from remote_fetch.model import RemoteLogSegmentId, TopicIdPartition
from remote_fetch.observe import Notice, ignore
from remote_fetch.session.brokers import Brokers
from remote_fetch.session.locator_kinds import beside_brokers, open_broker_locator, open_listing, open_snapshot
from remote_fetch.session.metadata_source import MetadataSource
from remote_fetch.session.no_storage import NoStorage
from remote_fetch.session.service import open_service
from remote_fetch.session.storage import Storage

if TYPE_CHECKING:
    from remote_fetch.locate.broker_locator import BrokerLocator
    from remote_fetch.locate.cluster import Cluster
    from remote_fetch.locate.metadata_topic import MetadataTopicLocator
    from remote_fetch.locate.service_client import ServiceClient

__all__ = ["ConfiguredLocator", "Planned"]


@dataclass(frozen=True, slots=True)
class Planned:
    """The contents of a plan that another session made.

    - `timelines` are the segments of the plan. `inferred` are the segments whose end is a guess.
    - `log_starts` are the log start offsets at the time of planning. They are used if no broker answers.
    - `may_be_cut` is that of `LogGuard`.
    """

    timelines: tuple[Timeline, ...]
    inferred: frozenset[RemoteLogSegmentId]
    log_starts: Mapping[TopicIdPartition, int]
    may_be_cut: bool = True


class ConfiguredLocator:
    """Opens and closes the locator of one session, over its `storage`.

    - `unlocated` is the reason if segments cannot be located. None: the locator finds all tiered segments.
    - `is_off`: the brokers do not support the locator's request, and all records come through them.
    - `name` is the class of the configured locator, empty before it is opened.
    """

    def __init__(self, config: Config, fetcher: RemoteStorageFetcher, storage: Storage, *, shared: bool) -> None:
        self._config = config
        self._fetcher = fetcher
        self._storage = storage
        self._observe = storage.observe
        self._is_shared = shared
        self.brokers: Brokers | None = None
        self.unlocated: ErrorKind | None = ErrorKind.NOT_CONFIGURED if isinstance(fetcher, NoStorage) else None
        self.is_off, self._why, self.name = False, "", ""
        self._broker_locator: BrokerLocator | None = None
        self._service: ServiceClient | None = None
        self._metadata: MetadataSource | None = None
        self._metadata_locator: MetadataTopicLocator | None = None

    def open(self, planned: Planned | None, brokers: Brokers | None) -> Locator:
        """The locator. With a plan it is that of the plan, and opens the configured one if the plan is not enough.

        Raises ConfigError, MissingExtra, and the errors of the locator.
        """
        self.brokers = brokers
        self._service = open_service(self._config, self._fetcher)
        if planned is None:
            return self._open_configured()
        return PlannedLocator(planned.timelines, planned.inferred, self._open_configured)

    def _open_configured(self) -> Locator:
        located_by = self._open_kind()
        self.name = type(located_by).__name__
        return beside_brokers(located_by, self.brokers, self._observe)

    def _open_kind(self) -> Locator:
        settings = self._config.settings
        default = "metadata-topic" if self.brokers is not None else "listing"
        kind = default if isinstance(self._fetcher, NoStorage) else settings.locator or default
        if kind == "snapshot":
            return open_snapshot(settings)
        if self._service is not None and self.brokers is not None:
            from remote_fetch.locate.service_locator import ServiceLocator  # noqa: PLC0415 - it loads librdkafka

            return ServiceLocator(
                self.brokers.cluster, self._service, say=self.cannot_locate, recovered=self._can_locate
            )
        if kind == "metadata-topic":
            return self._open_metadata_topic()
        if kind == "broker":
            self._broker_locator = open_broker_locator(settings, self._cluster_for(kind), self.turn_off)
            return self._broker_locator
        # A broker may still have the lost records. Then a plan asks the broker, with a reason that is reported.
        return open_listing(self._fetcher, self._storage, self._observe if self.brokers is None else ignore)

    def _open_metadata_topic(self) -> Locator:
        cluster = self._cluster_for("metadata-topic")
        from remote_fetch.locate.metadata_topic import MetadataTopicLocator  # noqa: PLC0415 - it loads librdkafka

        if not isinstance(self._fetcher, NoStorage):
            self._metadata = MetadataSource(self._config, cluster, shared=self._is_shared)
        self._metadata_locator = MetadataTopicLocator(
            cluster,
            None if self._metadata is None else self._metadata.open(),
            say=self.cannot_locate,
            recovered=self._can_locate,
            remark=self._observe,
            is_elsewhere="bootstrap.servers" in self._config.locator,
        )
        return self._metadata_locator

    def _cluster_for(self, kind: str) -> Cluster:
        if self.brokers is None:
            raise ConfigError(f"remote.locator={kind} needs bootstrap.servers (-b)", key="remote.locator")
        return self.brokers.cluster

    def cannot_locate(self, why: str) -> None:
        """Note and report that segments cannot be located now."""
        self.unlocated, self._why = ErrorKind.UNLOCATABLE, why
        self._observe(Notice(f"{why}: what has not been located comes through the broker", is_warning=True))

    def _can_locate(self) -> None:
        self.unlocated = None

    def turn_off(self, why: str) -> None:
        """Note and report that the brokers do not support the locator's request."""
        self.is_off, self._why = True, why
        self._observe(Notice(why, is_warning=True))

    def check(self) -> None:
        """Raise an error if segments cannot be located, for a caller that would show the tier as empty.

        ConfigError if no storage is configured, else Unlocatable with the reason.
        """
        if self.unlocated is ErrorKind.NOT_CONFIGURED:
            raise no_storage_error()
        if self.unlocated is not None or self.is_off:
            raise Unlocatable(f"the segments cannot be located: {self._why}")

    @property
    def failure(self) -> type[Unlocatable] | None:
        """As `MetadataTopicLocator.failure`. None with another locator."""
        return None if self._metadata_locator is None else self._metadata_locator.failure

    @property
    def answered_s(self) -> float:
        """Time of the last answer of the metadata cluster or the service (`time.monotonic`); 0 if none has answered."""
        asked = (self._metadata_locator, self._service)
        return max(0.0 if it is None else it.answered_s for it in asked)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Give new credentials to the locator's clients. One with its own user (`remote.locator.`) keeps that one."""
        if self._broker_locator is not None:
            self._broker_locator.locations.reconnect()
        if self._service is not None and "sasl.username" not in self._config.locator:
            self._service.set_sasl_credentials(username, password)
        topic = None if self._metadata is None else self._metadata.set_sasl_credentials(username, password)
        if self._metadata_locator is not None:
            self._metadata_locator.take_credentials(topic)

    def finish(self) -> None:
        """End what reads the metadata topic. Call this before the client of the brokers is closed."""
        if self._metadata is not None:
            self._metadata.finish()

    def close(self) -> None:
        """Close the locator's clients, after the client of the brokers. Each is closed, also if another one raises."""
        with ExitStack() as parts:  # it calls the last one first
            if self._broker_locator is not None:
                parts.callback(self._broker_locator.locations.close)
            if self._metadata_locator is not None:
                parts.callback(self._metadata_locator.pass_on_remarks)
            if self._metadata is not None:
                parts.callback(self._metadata.close)
            if self._service is not None:
                parts.callback(self._service.close)

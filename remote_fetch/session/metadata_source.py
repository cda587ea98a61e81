"""The metadata topic of one session: which client reads it, who shares it, and where its replay is saved.

Rules of the file:

- Consumers of one process share the replay if all that decides what they see is the same (design note 0013).
- A session that shares nothing reads through its own cluster, or through a client of its own if the topic lives on
  another cluster (`remote.locator.bootstrap.servers`).
- New credentials change nothing for others, which read with the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.model import TOPIC_NAME_RULE, Uuid, is_topic_name
from remote_fetch.session.brokers import CLUSTER_TIMEOUT_MS, make_cluster

if TYPE_CHECKING:
    from remote_fetch.locate.cluster import Cluster
    from remote_fetch.locate.metadata_replay import MetadataTopic
    from remote_fetch.locate.replay import Replay
    from remote_fetch.locate.replay_cache import ReplayCache

__all__ = ["MetadataSource"]


class MetadataSource:
    """Opens the metadata topic for a session whose brokers are those of `cluster`. `close` gives it back."""

    def __init__(self, config: Config, cluster: Cluster, *, shared: bool) -> None:
        self._config = config
        self._cluster = cluster
        self._is_shared = shared
        self._own_cluster: Cluster | None = None
        self._own_topic: MetadataTopic | None = None
        self._lease: dict[str, Any] | None = None

    def open(self) -> MetadataTopic:
        """The metadata topic. Raises ConfigError for a wrong name or a cache that cannot be opened."""
        properties = self._config.for_locator()
        if self._is_shared:
            return self._take(properties)
        self._own_topic = self._make(self._open_cluster(properties))
        return self._own_topic

    def open_records(self, new_replay: Callable[[Uuid | None], Replay]) -> MetadataTopic:
        """The metadata topic for a reader that keeps records in its own way. Nothing is saved. Raises ConfigError."""
        from remote_fetch.locate.metadata_replay import MetadataTopic  # noqa: PLC0415 - librdkafka is loaded for it

        cluster = self._open_cluster(self._config.for_locator())
        self._own_topic = MetadataTopic(
            cluster, timeout_ms=CLUSTER_TIMEOUT_MS, name=self._topic_name(), new_replay=new_replay
        )
        return self._own_topic

    def _open_cluster(self, properties: dict[str, Any]) -> Cluster:
        if self._config.locator:
            self._own_cluster = self._make_cluster(properties)
        return self._own_cluster or self._cluster

    def _make_cluster(self, properties: dict[str, Any]) -> Cluster:
        """A client of its own. If it has keys of its own, its first contact tells which of them is wrong."""
        servers = "bootstrap.servers"
        key = f"remote.locator.{servers}" if servers in self._config.locator else servers
        return make_cluster(properties, checks=bool(self._config.locator), servers_key=key)

    def set_sasl_credentials(self, username: str, password: str) -> MetadataTopic | None:
        """Take new credentials, unless the topic has a user of its own. Return the topic to read through from now on.

        None: the topic is the same.
        """
        if "sasl.username" in self._config.locator:
            return None
        if self._own_cluster is not None:
            self._own_cluster.set_sasl_credentials(username, password)
        if self._lease is None:
            return None
        return self._take(self._lease | {"sasl.username": username, "sasl.password": password})

    def finish(self) -> None:
        """Save the replay if that is due. To be called while the clusters are open."""
        if self._own_topic is not None:
            self._own_topic.finish()

    def close(self) -> None:
        """Close the client, or give the shared topic back. May be called twice."""
        if self._own_cluster is not None:
            self._own_cluster.close()
        self._give_back()

    def _make(self, cluster: Cluster) -> MetadataTopic:
        from remote_fetch.locate.metadata_replay import MetadataTopic  # noqa: PLC0415 - librdkafka is loaded for it

        place, name = self._config.settings.locator_cache, self._topic_name()
        cache = None if place is None else self._open_cache(place)
        return MetadataTopic(cluster, timeout_ms=CLUSTER_TIMEOUT_MS, name=name, cache=cache)

    def _topic_name(self) -> str:
        name = self._config.settings.locator_topic
        if not is_topic_name(name):
            raise ConfigError(f"remote.locator.topic={name[:300]!r}: {TOPIC_NAME_RULE}", key="remote.locator.topic")
        return name

    def _open_cache(self, place: str) -> ReplayCache:
        from remote_fetch.locate.replay_cache import ReplayCache  # noqa: PLC0415 - only if it is used
        from remote_fetch.session.file_stores import open_file_store  # noqa: PLC0415 - as above

        return ReplayCache(open_file_store(self._config, place))

    def _take(self, properties: dict[str, Any]) -> MetadataTopic:
        """The metadata topic that all consumers of this process with the same configuration read."""
        from remote_fetch.locate.metadata_replay import METADATA_TOPICS  # noqa: PLC0415 - as above

        topic = METADATA_TOPICS.take(self._key(properties), lambda: self._make(self._make_cluster(properties)))
        self._give_back()
        self._lease = properties
        return topic

    def _give_back(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            from remote_fetch.locate.metadata_replay import METADATA_TOPICS  # noqa: PLC0415 - as above

            METADATA_TOPICS.give_back(self._key(lease))

    def _key(self, properties: dict[str, Any]) -> Hashable:
        """The key under which readers share the metadata topic: all that decides what they see, and what is saved."""
        from remote_fetch.locate.leases import key_of  # noqa: PLC0415 - as above

        settings = self._config.settings
        cache = settings.locator_cache
        saving = () if cache is None else (cache, settings.storage_url, key_of(self._config.options))
        return key_of(properties), settings.locator_topic, saving

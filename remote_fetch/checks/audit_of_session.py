"""Opens the sources of an audit: the storage and the brokers of a session.

Rules of the file:

- The metadata topic is read by a client of its own, and nothing that is read is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.checks.audit_deep import DeepAudit
from remote_fetch.checks.audit_sources import AuditSources
from remote_fetch.checks.deep_journal import DeepJournal
from remote_fetch.errors import ConfigError, UnknownTopic
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.described import described_topic
from remote_fetch.locate.replay import Replay
from remote_fetch.locate.unreadable import unlocatable
from remote_fetch.model import NO_ID, IsolationLevel, TopicIdPartition, Uuid
from remote_fetch.session.metadata_source import MetadataSource
from remote_fetch.session.session import Session

__all__ = ["audit_sources"]

_NOT_TOLD = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # the topic was deleted during the audit
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""The errors for which the brokers do not tell a log start offset. The audit goes on without it."""


@contextmanager
def audit_sources(session: Session, journal: DeepJournal | None = None) -> Iterator[AuditSources]:
    """The sources of an audit. `journal` is that of a deep one.

    Raises ConfigError without brokers, and if the fetcher does not tell its objects. To read the records raises
    Unlocatable if the metadata topic does not exist or may not be read.
    """
    if session.brokers is None:
        raise ConfigError("audit reads the metadata topic: set bootstrap.servers (-b)", key="bootstrap.servers")
    cluster = session.brokers.cluster
    source = MetadataSource(session.config, cluster, shared=False)

    def open_records(new_replay: Callable[[Uuid | None], Replay]) -> Callable[[], object]:
        topic = source.open_records(new_replay)

        def read_all() -> object:
            try:
                return topic.read_all()
            except KafkaException as error:
                raise unlocatable(error, topic.name) from None

        return read_all

    try:
        yield AuditSources(
            session.inventory(),
            open_records,
            lambda topic: _topic_id(cluster, topic),
            lambda partition: _log_start(cluster, partition),
            DeepAudit(session.storage, session.codecs, journal).findings,
            session.stored_size,
        )
    finally:
        source.finish()
        source.close()


def _topic_id(cluster: Cluster, topic: str) -> Uuid | None:
    try:
        return described_topic(cluster, topic).topic_id
    except UnknownTopic:
        return NO_ID
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return None
        raise


def _log_start(cluster: Cluster, partition: TopicIdPartition) -> int | None:
    try:
        return cluster.log_bounds(partition, IsolationLevel.READ_UNCOMMITTED).log_start_offset
    except KafkaException as error:
        if error.args[0].code() in _NOT_TOLD:
            return None
        raise

"""Questions to a Kafka cluster about topics: their ids, their ends, and whether this principal may read them.

Rules of the file:

- No call may create a topic. The brokers create their own `__consumer_offsets` for the first consumer of librdkafka.
- No call joins or changes a consumer group.
- Every wait has a deadline.
- A refusal of the broker is raised as the broker's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from remote_fetch.deadline import Deadline
from remote_fetch.failures.broker_errors import is_unanswered
from remote_fetch.kafka_clients import AdminClient, Consumer
from remote_fetch.locate.admin_offsets import AdminOffsets
from remote_fetch.locate.answers import LogEnds, addresses_of, raw_uuid, settings_of
from remote_fetch.locate.clients import Clients
from remote_fetch.locate.consumer_offsets import ConsumerOffsets
from remote_fetch.locate.contact import SERVERS_KEY
from remote_fetch.locate.epoch_prober import EpochProber
from remote_fetch.locate.slices import Newcomer, ask_in_slices
from remote_fetch.locate.tokens import TokenCache
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid

__all__ = ["Cluster", "Topic"]

T = TypeVar("T")

_SETTINGS_S = 5.0
"""How long a question about settings waits. Callers can do without an answer."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it. `topic_id` None: the brokers are too old to have ids (before Kafka 2.8)."""

    name: str
    topic_id: Uuid | None
    partitions: tuple[int, ...]
    may_read: bool


class Cluster(Clients):
    """One Kafka cluster, seen through a client configuration (librdkafka's properties).

    With `checks` the first question raises BrokerUnavailable if no broker answers. Without it, the first question waits
    like any other.
    """

    def __init__(
        self, properties: Mapping[str, Any], *, timeout_ms: int, checks: bool = False, servers_key: str = SERVERS_KEY
    ) -> None:
        super().__init__(properties, checks=checks, servers_key=servers_key)
        self._timeout_s = timeout_ms / 1000
        self._newcomer = Newcomer()
        self._in_sync: str | None = None
        self._tokens = TokenCache.of(properties)
        self._prober = EpochProber(self, timeout_s=self._timeout_s)
        self._offsets = AdminOffsets(self, timeout_s=self._timeout_s)
        self._by_consumer = ConsumerOffsets(self)

    @property
    def contact_properties(self) -> dict[str, Any]:
        """As `properties`, with the addresses of the brokers that were in sync for the topic that was described last.

        For a client that tries one address after the other, because an address in the configuration may be silent.
        Such a client may live for one question, so all of them get the same token as long as it is valid.
        """
        tokens = self._tokens
        given = {} if tokens is None else {"oauth_cb": lambda _: tokens.answer}
        return self._properties | given | ({} if self._in_sync is None else {"bootstrap.servers": self._in_sync})

    def describe(self, name: str, *, timeout_s: float | None = None) -> Topic:
        """A topic's id, partitions, and whether this principal may READ it.

        `timeout_s` None: the timeout of the cluster. Raises KafkaException with the broker's error:
        UNKNOWN_TOPIC_OR_PART, TOPIC_AUTHORIZATION_FAILED, _TIMED_OUT.
        """

        def ask(admin: AdminClient, timeout_s: float) -> Any:
            wanted = TopicCollection([name])
            answers = admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=timeout_s)
            try:
                return answers[name].result()
            finally:
                del answers  # else the future, its error and this frame hold each other, and the client

        found = self._asked(ask, timeout_s)
        self.answered()
        self._in_sync = addresses_of(found) or self._in_sync
        raw = raw_uuid(found.topic_id)
        operations = found.authorized_operations
        return Topic(
            name,
            None if raw == bytes(16) else Uuid(raw),
            tuple(sorted(partition.id for partition in found.partitions)),
            operations is None or AclOperation.READ in operations,
        )

    def committed(
        self, group: str, partitions: Collection[TopicPartition], isolation: IsolationLevel, *, timeout_s: float
    ) -> list[TopicPartition]:
        """The committed offsets of a group (OffsetFetch). An offset below 0: the group has committed none.

        Under `read_committed` the call waits for offsets that an open transaction has sent (KIP-447). Raises
        KafkaException with the broker's error.
        """
        # The AdminClient is not used here: if it gets an answer about the coordinator after its request has timed out,
        # librdkafka (2.16) aborts the process ("eonce->refcnt > 0"). This consumer joins no group, it only has its id.
        return list(self._of_group(group, isolation).committed(list(partitions), timeout=timeout_s))

    def ends_for_group(
        self, group: str, partitions: Collection[TopicPartition], isolation: IsolationLevel, *, timeout_s: float
    ) -> list[TopicPartition]:
        """The ends of logs for the isolation level (ListOffsets), by the client of `committed`.

        An answer may have an error. Raises KafkaException if there is no answer.
        """
        wanted = [TopicPartition(partition.topic, partition.partition, OFFSET_END) for partition in partitions]
        return list(self._of_group(group, isolation).offsets_for_times(wanted, timeout=timeout_s))

    def _of_group(self, group: str, isolation: IsolationLevel) -> Consumer:
        return self._consumer(isolation, f"group {group}", {"group.id": group})

    def names(self) -> tuple[str, ...]:
        """The topics that this principal may see, sorted. Raises KafkaException with the broker's error."""
        return tuple(sorted(self.metadata().topics))

    def metadata(self) -> Any:
        """All brokers and all topics that this principal may see (Metadata). Raises KafkaException as `names`."""
        return self._asked(lambda admin, timeout_s: admin.list_topics(timeout=timeout_s))

    def cluster_id(self) -> str | None:
        """The id of the cluster, None if the brokers give none. Raises KafkaException with the broker's error."""
        found: str | None = self._asked(
            lambda admin, timeout_s: admin.describe_cluster(request_timeout=timeout_s).result().cluster_id
        )
        return found

    def topic_settings(self, name: str) -> dict[str, str]:
        """The configuration of a topic in force, defaults included. Needs DESCRIBE_CONFIGS on the topic.

        Raises KafkaException with the broker's error.
        """
        return settings_of(self.admin(), ResourceType.TOPIC, name, min(_SETTINGS_S, self._timeout_s))

    def is_tiered(self, name: str) -> bool | None:
        """Whether a topic may have segments in the tier. None: the brokers do not tell."""
        try:
            return self.topic_settings(name).get("remote.storage.enable") == "true"
        except KafkaException:
            return None

    def broker_settings(self) -> dict[str, str]:
        """As `topic_settings`, of one broker, without secrets. Needs DESCRIBE_CONFIGS on the cluster."""
        number = str(min(self.metadata().brokers))
        return settings_of(self.admin(), ResourceType.BROKER, number, min(_SETTINGS_S, self._timeout_s))

    def _asked(self, ask: Callable[[AdminClient, float], T], timeout_s: float | None = None) -> T:
        """The answer of the AdminClient. If its broker does not answer, a new client asks another."""

        def ask_once(timeout_s: float) -> T:
            admin = self.admin()
            turn = self._newcomer.turn(admin, timeout_s)
            try:
                answer = ask(admin, turn.slice_s)
            except KafkaException as error:
                if is_unanswered(error):
                    self._newcomer.note_silence(turn)
                    if turn.is_last:
                        self.replace_admin(admin)
                # confluent_kafka's frames hold the future that has the error: a cycle, which would hold the client.
                error.__traceback__ = None
                raise
            else:
                self._newcomer.note_answer(turn)
                return answer
            finally:
                admin.poll(0)  # which tells `causes`. After an answer too: the next silence may have another cause
                del admin, turn  # else an error that the caller keeps would hold the client

        try:
            return ask_in_slices(ask_once, Deadline.after(timeout_s or self._timeout_s))
        except KafkaException as error:
            self.causes.explain(error)
            raise

    def log_bounds(
        self,
        partition: TopicIdPartition,
        isolation: IsolationLevel,
        *,
        timeout_s: float | None = None,
        by_consumer: bool = False,
    ) -> LogBounds:
        """The log start offset, and the end for the isolation level: the high watermark or the last stable offset.

        DeleteRecords may move the log start past the last stable offset: no record is readable, and both are equal.
        `timeout_s` None: the timeout of the cluster. `by_consumer`: only the consumer of the isolation level asks, and
        it is replaced if it has lost its brokers. Raises KafkaException with the broker's error.
        """
        deadline = Deadline.after(timeout_s or self._timeout_s)
        wanted = TopicPartition(partition.topic, partition.partition)
        asks_admin = self._admin is not None and not by_consumer
        quick = self._offsets.bounds(wanted, isolation, deadline.left_s / 2) if asks_admin else None
        try:
            return quick or self._by_consumer.bounds(wanted, isolation, deadline)
        except KafkaException as error:
            if (admin := self._admin) is not None:
                admin.poll(0)  # the consumer may be read by another thread
            self.causes.explain(error)
            raise

    def ends(self, name: str, numbers: Collection[int]) -> dict[int, LogEnds]:
        """The ends of partitions (ListOffsets). Raises KafkaException with the first error about any of them."""
        return self._asked(lambda admin, timeout_s: self._offsets.ends(admin, name, numbers, timeout_s))

    def learn_partitions(self, topic: str, isolation: IsolationLevel) -> None:
        """Make librdkafka look up new partitions of a topic now. It would take minutes to notice them.

        Raises KafkaException with the broker's error.
        """
        ask_in_slices(
            lambda timeout_s: self.consumer(isolation).list_topics(topic, timeout=timeout_s),
            Deadline.after(self._timeout_s),
        )

    def offset_for_time(self, partition: TopicIdPartition, timestamp_ms: int, isolation: IsolationLevel) -> int | None:
        """The first offset whose record is not before `timestamp_ms`, None if there is none (ListOffsets).

        Raises KafkaException with the broker's error.
        """
        wanted = TopicPartition(partition.topic, partition.partition, max(timestamp_ms, 0))
        found = self._by_consumer.listed(wanted, isolation, Deadline.after(self._timeout_s))
        return found if found >= 0 else None

    def latest_local_time_ms(self, partition: TopicIdPartition) -> int | None:
        """As `AdminOffsets.latest_time_ms`."""
        return self._offsets.latest_time_ms(TopicPartition(partition.topic, partition.partition))

    def still_holds(self, partition: TopicIdPartition, leader_epoch: int, end_offset: int) -> bool:
        """Whether the leader still has the log up to `end_offset` (exclusive), whose last record is of `leader_epoch`.

        After an unclean leader election it may not (KIP-101, KIP-320). If the leader has a later epoch,
        OffsetForLeaderEpoch decides. False if no broker confirms it in time, or if `end_offset` lies past the high
        watermark. Raises KafkaException with the broker's error.
        """
        wanted = TopicPartition(partition.topic, partition.partition)
        if self._offsets.latest_epoch(wanted) == leader_epoch:
            return True  # if it has failed, the next question raises the same error, if that lasts
        log = self.log_bounds(partition, IsolationLevel.READ_UNCOMMITTED)
        if end_offset <= (log.log_start_offset or 0):
            return True
        return end_offset <= (log.end_offset or 0) and self._prober.holds(partition, leader_epoch, end_offset)

"""Questions to a Kafka cluster about topics: their ids, their ends, and whether this principal may read them.

Rules of the file:

- No call may create a topic. The brokers create their own `__consumer_offsets` for the first consumer of librdkafka.
- No call joins or changes a consumer group.
- Every wait has a deadline.
- A refusal of the broker is raised as the broker's own error.
- The clients are those of confluent_kafka. Each is made when it is first needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from remote_fetch.deadline import Deadline
from remote_fetch.errors import BrokerUnavailable, Cancelled
from remote_fetch.failures.broker_errors import is_unanswered, lacks_token
from remote_fetch.failures.shared_failure import SharedFailure
from remote_fetch.kafka_clients import AdminClient, Consumer
from remote_fetch.locate.admin_offsets import AdminOffsets
from remote_fetch.locate.answers import LogEnds, addresses_of, raw_uuid, settings_of
from remote_fetch.locate.clients import NO_LONG_POLL, PROBE, QUIET, admin_properties, consumer_properties
from remote_fetch.locate.consumer_offsets import ConsumerOffsets
from remote_fetch.locate.contact import SERVERS_KEY, first_contact
from remote_fetch.locate.epoch_prober import EpochProber
from remote_fetch.locate.slices import Newcomer, ask_in_slices
from remote_fetch.locate.tokens import TokenCache
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid

__all__ = ["Cluster", "Topic"]

T = TypeVar("T")

_SETTINGS_S = 5.0
"""How long a question about settings waits. Callers can do without an answer."""
_WAIT_FOR_TOKENS = ("oauth_cb", "sasl.oauthbearer.metadata.authentication.type")
"""If the properties have one of these, confluent_kafka makes a client in a second at least: it waits for the token."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it. `topic_id` None: the brokers are too old to have ids (before Kafka 2.8)."""

    name: str
    topic_id: Uuid | None
    partitions: tuple[int, ...]
    may_read: bool


class Cluster:
    """One Kafka cluster, seen through a client configuration (librdkafka's properties).

    Thread-safe. A caller of `consumer` or `catcher` makes sure that one thread at a time uses the returned consumer.
    With `checks` the first question raises BrokerUnavailable if no broker answers. Without it, the first question waits
    like any other. `servers_key` is the key under which the user gave the addresses. `answered_s` is the time of the
    last answer of a broker (`time.monotonic`), 0 if there was none. Threads that read with the same consumer hold
    `reading` in turn.
    """

    def __init__(
        self, properties: Mapping[str, Any], *, timeout_ms: int, checks: bool = False, servers_key: str = SERVERS_KEY
    ) -> None:
        self._properties = dict(properties)
        self._servers_key = servers_key
        self._is_unchecked = checks
        self._checking = threading.Lock()  # for the first contact: `_is_unchecked`, `_no_contact`
        self._no_contact = SharedFailure()
        self._timeout_s = timeout_ms / 1000
        self._admin: AdminClient | None = None
        self._newcomer = Newcomer()
        self._in_sync: str | None = None
        self._tokens = TokenCache.of(properties)
        self._consumers: dict[tuple[IsolationLevel, str], Consumer] = {}
        # For `_admin`; and for `_consumers`, `_properties` and `_is_closed`. They are taken in this order.
        self._making_admin, self._making = threading.Lock(), threading.Lock()
        self.reading = threading.Lock()
        self._prober = EpochProber(
            lambda: self._consumer(IsolationLevel.READ_UNCOMMITTED, "prober", PROBE),
            timeout_s=self._timeout_s,
            replace=self.replace,
            answered=self.answered,
        )
        self._offsets = AdminOffsets(self._admin_client, timeout_s=self._timeout_s, answered=self.answered)
        self._by_consumer = ConsumerOffsets(self.consumer, replace=self.replace, answered=self.answered)
        self._is_closed = False
        self.answered_s = 0.0

    @property
    def properties(self) -> dict[str, Any]:
        """The client configuration with the current credentials. It holds secrets."""
        return dict(self._properties)

    @property
    def contact_properties(self) -> dict[str, Any]:
        """As `properties`, with the addresses of the brokers that were in sync for the topic that was described last.

        For a client that tries one address after the other, because an address in the configuration may be silent.
        Such a client may live for one question, so all of them get the same token as long as it is valid.
        """
        tokens = self._tokens
        given = {} if tokens is None else {"oauth_cb": lambda _: tokens.answer}
        return self._properties | given | ({} if self._in_sync is None else {"bootstrap.servers": self._in_sync})

    def answered(self) -> None:
        """Note that a broker has answered a client of this cluster."""
        self.answered_s = time.monotonic()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As `confluent_kafka.Consumer.set_sasl_credentials`: for new connections."""
        with self._making_admin, self._making:
            self._properties |= {"sasl.username": username, "sasl.password": password}
            clients = [client for client in (self._admin, *self._consumers.values()) if client is not None]
        for client in clients:  # a client that is answering a question takes them after the answer
            client.set_sasl_credentials(username, password)

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
        return settings_of(self._admin_client(), ResourceType.TOPIC, name, min(_SETTINGS_S, self._timeout_s))

    def is_tiered(self, name: str) -> bool | None:
        """Whether a topic may have segments in the tier. None: the brokers do not tell."""
        try:
            return self.topic_settings(name).get("remote.storage.enable") == "true"
        except KafkaException:
            return None

    def broker_settings(self) -> dict[str, str]:
        """As `topic_settings`, of one broker, without secrets. Needs DESCRIBE_CONFIGS on the cluster."""
        number = str(min(self.metadata().brokers))
        return settings_of(self._admin_client(), ResourceType.BROKER, number, min(_SETTINGS_S, self._timeout_s))

    def _asked(self, ask: Callable[[AdminClient, float], T], timeout_s: float | None = None) -> T:
        """The answer of the AdminClient. If its broker does not answer, a new client asks another."""

        def ask_once(timeout_s: float) -> T:
            admin = self._admin_client()
            turn = self._newcomer.turn(admin, timeout_s)
            try:
                answer = ask(admin, turn.slice_s)
            except KafkaException as error:
                if is_unanswered(error):
                    self._newcomer.note_silence(turn)
                    with self._making_admin:
                        if turn.is_last and self._admin is admin:
                            self._admin = None  # an AdminClient stays with its broker, even after that has died
                raise
            self._newcomer.note_answer(turn)
            return answer

        return ask_in_slices(ask_once, Deadline.after(timeout_s or self._timeout_s))

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
        return quick or self._by_consumer.bounds(wanted, isolation, deadline)

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

    def _check(self) -> None:
        """Make the first contact, if it has not been made. Threads that wait for it share its error."""
        if not self._is_unchecked:
            return
        asked_s = time.monotonic()
        with self._checking:
            if not self._is_unchecked:
                return
            self._no_contact.check(asked_s)
            with self._no_contact.kept(BrokerUnavailable):
                asked = admin_properties(self.properties)
                client = first_contact(asked, lambda: self._is_closed, self._servers_key)
            with self._making_admin:
                self._check_open()
                self._admin, self._is_unchecked = client, False

    def _admin_client(self) -> AdminClient:
        self._check()
        with self._making_admin:
            self._check_open()
            if self._admin is None:  # AdminClient defines __len__, so compare with None
                self._admin = _made(lambda: AdminClient(admin_properties(self._properties)))
            return self._admin

    def consumer(self, isolation: IsolationLevel) -> Consumer:
        """The consumer of an isolation level. It joins no group, commits nothing and never resets its offset.

        It is another one after `replace`.
        """
        return self._consumer(isolation, "reader", {})

    def connect(self) -> None:
        """Begin to connect the clients that read a topic to its end, so that they connect at the same time.

        Waits for nothing. Does nothing before the first contact of a cluster that `checks`, and after `close`.
        """
        if self._is_unchecked:
            return
        is_slow = not self._properties.keys().isdisjoint(_WAIT_FOR_TOKENS)
        for make in (self._admin_client, self.catcher):
            if is_slow:
                threading.Thread(target=_begin, args=(make,), name="remote-fetch-connect", daemon=True).start()
            else:
                _begin(make)

    def catcher(self) -> Consumer:
        """The consumer for topics that are read to their end again and again, such as `__remote_log_metadata`."""
        return self._consumer(IsolationLevel.READ_UNCOMMITTED, "catcher", NO_LONG_POLL)

    def log_less(self) -> None:
        """Make new clients, which do not log failed connections. The caller reports brokers that are away."""
        with self._making_admin, self._making:
            self._properties = {**QUIET, **self._properties}
            self._admin, self._consumers = None, {}

    def replace(self, consumer: Consumer) -> None:
        """Make a new consumer when the next one is asked for: this one may have lost all brokers for ever.

        It is not closed, for another thread may still use it. It ends with its last reference.
        """
        with self._making:
            self._consumers = {key: known for key, known in self._consumers.items() if known is not consumer}

    def _consumer(self, isolation: IsolationLevel, purpose: str, more: Mapping[str, Any]) -> Consumer:
        """The consumer for a purpose, made at its first use."""
        self._check()
        with self._making:
            self._check_open()
            if (isolation, purpose) not in self._consumers:
                properties = {**consumer_properties(self._properties, isolation), **more}
                self._consumers[isolation, purpose] = _made(lambda: Consumer(properties))
            return self._consumers[isolation, purpose]

    def _check_open(self) -> None:
        """Raise Cancelled after `close`: a client that a waiting thread made then would never be closed."""
        if self._is_closed:
            raise Cancelled("the connection to the cluster was closed")

    def close(self) -> None:
        """Close the clients. Later questions raise Cancelled."""
        with self._making_admin, self._making:
            self._is_closed = True
            consumers, self._consumers = self._consumers, {}
            self._admin, self._newcomer = None, Newcomer()
        for consumer in consumers.values():
            consumer.close()


def _made(make: Callable[[], T]) -> T:
    """A client, made once more if its `oauth_cb` has failed. A read that has gone well for hours may need it.

    confluent_kafka waits 10 s for the token, and after a failure librdkafka asks for it again after 10 s.
    """
    try:
        return make()
    except KafkaException as error:
        if not lacks_token(error):
            raise
    return make()


def _begin(make: Callable[[], object]) -> None:
    """Make a client. If that fails, the first question meets the same error, and raises it."""
    with suppress(KafkaException, Cancelled):
        make()

"""The new topic: makes it, asks for its ends, and writes records into its partitions in order.

Rules of the file:

- The producer is idempotent: the broker writes each record once, in the order of the calls. A broker that is killed may
  forget a producer of old records (`producer.id.expiration.ms`). The restore counts what is written.
- Memory is bounded by librdkafka's queue. A full queue is waited for.
- An error of one record ends the writing, and no record behind it is in its partition.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from remote_fetch.amounts import counted
from remote_fetch.deadline import Deadline, retry
from remote_fetch.errors import ConfigError, UnknownTopic
from remote_fetch.failures.broker_errors import is_passing
from remote_fetch.kafka_clients import AdminClient, Producer
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.contact import Causes, calls_both
from remote_fetch.locate.described import described_topic
from remote_fetch.session.brokers import make_cluster

__all__ = ["Target", "consumer_properties_of"]

_LOG = logging.getLogger("remote_fetch.restore")
_TIMEOUT_S = 30.0
_RETRY_S = 0.1
_FLUSH_S = 1.0
_ANSWER_S = 2.0
_QUEUE_KBYTES = 131_072
_KEEPING: Mapping[str, str] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
)
"""Settings of a topic that keeps all its records."""
_ANY_TIME: Mapping[str, str] = MappingProxyType({"message.timestamp.after.max.ms": str(2**63 - 1)})
"""The setting of a topic that takes all timestamps. Brokers from 4.0 on refuse those more than an hour ahead. Brokers
before 3.6 do not know it, and a policy of a cluster (`create.topic.policy.class.name`) may refuse it."""
_MAY_REFUSE_SETTING = frozenset({KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION})
"""The codes of an error that may be due to that setting."""
_DEFAULTS: Mapping[str, Any] = {
    "log_level": 2,  # else librdkafka says at each start that it calls the gapless guarantee experimental
    "linger.ms": 20,
    "compression.type": "zstd",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": _QUEUE_KBYTES,
    "message.max.bytes": 1_000_000_000,
}
"""The properties of a user replace these."""
_BATCH_BYTES = 1_000_000
_BATCH_LIMITS = ("max.message.bytes", "segment.bytes")
"""The settings of a topic that bound a batch, after compression. A batch of small records may be too large for it."""
_CONSEQUENCES = frozenset({KafkaError._FATAL, KafkaError._INVALID_DIFFERENT_RECORD, KafkaError._PURGE_QUEUE})
"""Errors whose cause another one tells: a producer has ended, or a record was in a batch or queue with a wrong one."""
_GAPLESS: Mapping[str, Any] = MappingProxyType({"enable.idempotence": True, "enable.gapless.guarantee": True})
"""Without the second one librdkafka goes on behind a record that the broker has refused, and the topic lacks it."""


class Target:
    """One topic of a cluster, by the properties of a producer. Close it in the end."""

    def __init__(self, properties: Mapping[str, Any], topic: str) -> None:
        self.topic = topic
        self.properties = {**_DEFAULTS, **properties, **_GAPLESS}
        self._cluster: Cluster = make_cluster(consumer_properties_of(self.properties), checks=True)
        self._producer: Producer | None = None
        self._failure: KafkaError | None = None
        self._warned: set[str] = set()

    # ----------------------------------------------------------------------------------------------------- the topic

    def open(self, partitions: int, config: Mapping[str, str], replication: int, *, any_retention: bool = False) -> str:
        """Make the topic unless it exists. Returns its id.

        A new topic keeps its records for ever, unless `config` says something else: old records are older than most
        retention times. Raises ConfigError if the topic exists with fewer partitions, or with settings that delete
        records (`any_retention`: they may), and KafkaException.
        """
        try:
            found = described_topic(self._cluster, self.topic)
        except UnknownTopic:
            self._create(partitions, config, replication)
            return self._id_after_creation()
        if len(found.partitions) < partitions:
            raise ConfigError(
                f"the topic {self.topic!r} of the target has {counted(len(found.partitions), 'partition')}, and "
                f"{partitions} are needed",
                key="--to-topic",
                hint="Name a topic that does not exist: it is made with as many partitions as the old one has",
            )
        if not any_retention:
            self._check_retention()
        return str(found.topic_id)

    def _check_retention(self) -> None:
        settings = self._cluster.topic_settings(self.topic)
        found = {name: settings[name] for name in _KEEPING if settings.get(name, _KEEPING[name]) != _KEEPING[name]}
        if found:
            raise ConfigError(
                f"the topic {self.topic!r} of the target deletes records: "
                + ", ".join(f"{name}={value}" for name, value in found.items()),
                key="--to-topic",
                hint="Old records may be deleted at once. Set "
                + ", ".join(f"{name}={_KEEPING[name]}" for name in found)
                + " until the restore has ended, or use --any-retention",
            )

    def topic_id(self) -> str:
        """The id of the topic. Raises UnknownTopic if it does not exist, and KafkaException."""
        return str(described_topic(self._cluster, self.topic).topic_id)

    def partitions(self) -> tuple[int, ...]:
        """The numbers of its partitions. Raises as `topic_id`."""
        try:
            return described_topic(self._cluster, self.topic).partitions
        except UnknownTopic as error:
            at = self.properties["bootstrap.servers"]
            hint = "Create it with as many partitions as the old topic has"
            hint = hint if error.hint is None else f"{error.hint}. Else create it"
            raise UnknownTopic(f"the target {at} has no topic {self.topic!r}", hint=hint) from None

    def starts(self, partitions: Collection[int]) -> dict[int, int]:
        """The log start offset of each partition. Raises KafkaException."""
        return {number: low for number, (low, _, _) in self._bounds(partitions).items()}

    def ends(self, partitions: Collection[int]) -> dict[int, int]:
        """The end of each partition, exclusive. Raises KafkaException."""
        return {number: high for number, (_, high, _) in self._bounds(partitions).items()}

    def _bounds(self, partitions: Collection[int]) -> dict[int, tuple[int, int, int]]:
        """Asked until an answer comes: the leaders of a new topic are known a moment after it is made."""
        return retry(
            lambda: self._cluster.ends(self.topic, partitions), KafkaException,
            until=Deadline.after(_TIMEOUT_S), pause_s=_RETRY_S, may_pass=is_passing,
        )  # fmt: skip

    def _create(self, partitions: int, config: Mapping[str, str], replication: int) -> None:
        admin = AdminClient(consumer_properties_of(self.properties))

        def create(defaults: Mapping[str, str]) -> None:
            new = NewTopic(self.topic, partitions, replication, config={**defaults, **config})
            admin.create_topics([new], request_timeout=_TIMEOUT_S)[self.topic].result()

        try:
            create({**_KEEPING, **_ANY_TIME})
        except KafkaException as error:
            if error.args[0].code() not in _MAY_REFUSE_SETTING:
                raise
            create(_KEEPING)

    def _id_after_creation(self) -> str:
        """Brokers know a new topic a moment after the controller has made it."""
        return retry(
            self.topic_id, UnknownTopic, until=Deadline.after(_TIMEOUT_S), pause_s=_RETRY_S, may_pass=lambda _: True
        )

    # --------------------------------------------------------------------------------------------------- the records

    def write(
        self,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        timestamp_ms: int,
    ) -> None:
        """Send a record; `partition` None: the producer's partitioner chooses. Raises KafkaException.

        A timestamp below 1 cannot be sent: librdkafka takes 0 for the time of the call. The broker then has that time.
        Nor can the rest of a header's key behind a NUL: librdkafka ends keys there, and the log has a warning.
        """
        if any("\0" in name for name, _ in headers):
            self._warn("a header's key has a NUL, and librdkafka ends it there: the target has other keys")
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        named: list[tuple[str, str | bytes | None]] = [*headers]
        producer = self._opened()
        with self._own_errors():
            while True:
                try:
                    producer.produce(self.topic, value, key, headers=named, timestamp=max(timestamp_ms, 0), **where)
                    return
                except BufferError:
                    producer.poll(0.1)
                    self._check()

    def flush(self) -> None:
        """Wait until the broker has acknowledged all records. Raises KafkaException with the first error.

        librdkafka gives a record up after `message.timeout.ms` (`delivery.timeout.ms`), five minutes by default.
        """
        if self._producer is None:
            return
        with self._own_errors():
            while self._producer.flush(_FLUSH_S):
                self._check()
            self._check()

    def settle(self, timeout_s: float) -> bool:
        """Wait so long for the acknowledgements under way. Whether the broker has acknowledged all records."""
        if self._producer is None:
            return True
        until, left = Deadline.after(timeout_s), 1
        with suppress(KafkaException), self._own_errors():
            while left and self._failure is None and not until.is_over:
                left = self._producer.flush(_FLUSH_S)
        return not left and self._failure is None

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """After a fatal error confluent_kafka calls `_delivered` with that error under way: that is a SystemError.

        `produce` may raise the fatal error before the reports come that tell its cause.
        """
        try:
            yield
        except (SystemError, KafkaException) as error:
            raised = _raised(error)
            if not _tells(raised) and not _tells(self._failure) and self._producer is not None:
                try:
                    self._producer.flush(_FLUSH_S)
                except (SystemError, KafkaException) as later:
                    raised = _raised(later)
            known = [error for error in (self._failure, raised, KafkaError(KafkaError._FATAL)) if error is not None]
            raise KafkaException(next(filter(_tells, known), known[0])) from error

    def _opened(self) -> Producer:
        if self._producer is None:
            reports: dict[str, Any] = {"delivery.report.only.error": True, "on_delivery": self._delivered}
            causes = Causes()
            causes.listener = self._hear
            reports["error_cb"] = calls_both(causes.hear, self.properties.get("error_cb"))
            self._producer = Producer({"batch.size": self._batch_bytes(), **self.properties, **reports})
        return self._producer

    def _hear(self, cause: str) -> None:
        """Log a broker that cannot be reached, once for each cause: librdkafka would log each try."""
        self._warn(f"a broker of the target cannot be reached: {cause}")

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _LOG.warning("%s", text)

    def _batch_bytes(self) -> int:
        """The size of batches that the topic takes, unless the user names another."""
        settings: Mapping[str, str] = {}
        with suppress(KafkaException):  # to ask may be forbidden
            settings = self._cluster.topic_settings(self.topic)
        limits = (settings.get(name, "") for name in _BATCH_LIMITS)  # of another broker than Kafka, any text
        return min([_BATCH_BYTES, *(int(text) for text in limits if text.isdecimal())])

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        """Keep the first error that tells why."""
        if error is not None and not _tells(self._failure):
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise KafkaException(self._failure)

    def close(self) -> None:
        """Drop what was not sent, and close the clients. May be called twice."""
        producer, self._producer = self._producer, None
        if producer is not None:
            # librdkafka logs a fatal error if requests under way are dropped. A broker that is there answers them soon.
            for under_way, wait_s in ((False, _ANSWER_S), (True, _TIMEOUT_S)):
                producer.purge(in_flight=under_way)
                with suppress(SystemError, KafkaException):  # of records that are dropped
                    producer.flush(wait_s)
        self._cluster.close()


def _raised(error: SystemError | KafkaException) -> KafkaError | None:
    raised = error.__cause__ if isinstance(error, SystemError) else error
    return raised.args[0] if isinstance(raised, KafkaException) else None


def _tells(error: KafkaError | None) -> bool:
    """Whether an error tells why records are refused."""
    return error is not None and error.code() not in _CONSEQUENCES


_OF_PRODUCERS = frozenset(
    {
        "acks", "batch.num.messages", "batch.size", "compression.codec", "compression.level", "compression.type",
        "delivery.timeout.ms", "enable.gapless.guarantee", "enable.idempotence", "linger.ms",
        "max.in.flight", "max.in.flight.requests.per.connection", "message.send.max.retries", "message.timeout.ms",
        "partitioner", "queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes",
        "queue.buffering.max.messages", "queue.buffering.max.ms", "request.required.acks", "request.timeout.ms",
        "retries", "sticky.partitioning.linger.ms", "transaction.timeout.ms", "transactional.id",
    }
)  # fmt: skip
"""Properties that only producers take."""


def consumer_properties_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a producer that consumers and administrators of the same cluster take too."""
    return {name: value for name, value in properties.items() if name not in _OF_PRODUCERS}

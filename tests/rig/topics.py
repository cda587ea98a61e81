"""Operations on a rig's topics: make them, fill them, wait until they are tiered, read them through the broker.

Rules of the file:

- The broker's answer is the oracle, so it is read only with `confluent_kafka` and turned into plain values.
- Every wait has a deadline.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from remote_fetch.deadline import Deadline, retry
from remote_fetch.model import Uuid
from tests.rig.copied import latest_copied
from tests.rig.rig import Rig

__all__ = [
    "QUIET",
    "Offsets",
    "OracleRecord",
    "add_partitions",
    "admin",
    "broker_records",
    "create_topic",
    "delete_passing_topics",
    "delete_records",
    "delete_topic",
    "is_readable",
    "make_tiered",
    "offsets",
    "oracle_record",
    "set_config",
    "wait_tiered",
]

QUIET: Mapping[str, Any] = {"log_level": 2}
"""For every client of a rig: it does not log that a broker is down for a moment."""

_TIMEOUT_S = 150
_ONE_REQUEST_S = 5


@dataclass(frozen=True, slots=True)
class OracleRecord:
    """One record as a consumer got it. `value` is the value itself, or size and SHA-256 of a long one."""

    topic: str
    partition: int
    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """ListOffsets' answers for one partition. `latest_tiered` is inclusive, and -1 if no offset is tiered."""

    earliest: int
    earliest_local: int
    latest_tiered: int
    latest: int


def admin(rig: Rig) -> AdminClient:
    """An administrator's client."""
    return AdminClient({"bootstrap.servers": rig.bootstrap, **QUIET})


def create_topic(
    rig: Rig, topic: str, partitions: int = 1, *, brokers: Sequence[int] | None = None, **config: Any
) -> None:
    """Make a tiered topic with small segments. A closed segment goes to the tier and is deleted locally at once.

    - `brokers` get every partition, and the first of them leads. None: all brokers do, and the controller chooses.
    - `config` has further topic settings. Underscores stand for dots.
    """
    settings = {
        "remote.storage.enable": "true",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "local.retention.ms": "1",
        _setting(rig, "segment_bytes"): "8192",
        "index.interval.bytes": "512",
        "file.delete.delay.ms": "1000",
    }
    for name, value in config.items():
        settings[_setting(rig, name)] = str(value)
    if brokers is None:
        new = NewTopic(topic, partitions, len(rig.brokers), config=settings)
    else:
        new = NewTopic(topic, partitions, replica_assignment=[list(brokers)] * partitions, config=settings)
    lost: list[Exception] = []
    rig.passing_topics.add(topic)
    rig.until(f"topic {topic} is made", lambda: _is_made(rig, new, lost), timeout_s=3 * _TIMEOUT_S)
    # The controller has made the topic. The brokers know it a moment later.
    rig.until(f"topic {topic}", lambda: topic in _known_topics(rig))


def add_partitions(rig: Rig, topic: str, partitions: int) -> None:
    """Raise a topic's number of partitions to `partitions`, and wait until the brokers know the new ones."""
    client = admin(rig)
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(_TIMEOUT_S)

    def are_known() -> bool:
        return len(client.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions) == partitions

    rig.until(f"{partitions} partitions of {topic}", are_known)


def _is_made(rig: Rig, new: NewTopic, lost: list[Exception]) -> bool:
    """Whether the controller has made a topic. It does not make one while a broker that was suspended is fenced.

    Each request has a client of its own, for the reason that `_known_topics` tells. `lost` gets the requests without an
    answer. One of them may have made the topic.
    """
    client = admin(rig)  # an answer needs its client alive
    try:
        client.create_topics([new], request_timeout=_ONE_REQUEST_S)[new.topic].result(_TIMEOUT_S)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError._TIMED_OUT:
            lost.append(error)
        elif code == KafkaError.TOPIC_ALREADY_EXISTS and lost:
            return True
        elif code != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False
    return True


def _known_topics(rig: Rig) -> Collection[str]:
    """The topics that the broker knows, asked by a client of its own.

    Empty if the broker drops the connection or does not answer on it, for example after a pause. A client that met such
    a connection has waited for a minute and more, so that the next request is another client's.
    """
    try:
        return admin(rig).list_topics(timeout=_ONE_REQUEST_S).topics.keys()
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            raise
        logging.getLogger(__name__).warning("a request for the topics: %s", error)
        return ()


def _setting(rig: Rig, name: str) -> str:
    """Kafka's name of a topic setting. Since 4.1 brokers accept small segments only by an internal setting."""
    key = name.replace("_", ".")
    return f"internal.{key}" if key == "segment.bytes" and rig.is_at_least(4, 1) else key


def set_config(rig: Rig, topic: str, **config: Any) -> None:
    """Change topic settings. Underscores stand for dots."""
    entries = [
        ConfigEntry(_setting(rig, name), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    client = admin(rig)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(_TIMEOUT_S)


def delete_topic(rig: Rig, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    client = admin(rig)
    client.delete_topics([topic])[topic].result(_TIMEOUT_S)
    rig.until(f"topic {topic} gone", lambda: topic not in client.list_topics(timeout=_TIMEOUT_S).topics)


def delete_passing_topics(rig: Rig) -> None:
    """Ask the broker to delete what a test file has made, and do not wait until the segments are gone.

    A topic that a test has deleted is passed over, and so is a broker that a failed test has left stopped.
    """
    client = admin(rig)
    wanted = sorted(rig.passing_topics)
    rig.passing_topics.clear()
    answers = client.delete_topics(wanted, request_timeout=_ONE_REQUEST_S) if wanted else {}
    for answer in answers.values():
        with suppress(KafkaException):
            answer.result(_TIMEOUT_S)


def delete_records(rig: Rig, topic: str, partition: int, before_offset: int) -> None:
    """Move the log start offset to `before_offset`, by DeleteRecords."""
    wanted = TopicPartition(topic, partition, before_offset)
    client = admin(rig)
    client.delete_records([wanted])[wanted].result(_TIMEOUT_S)


class _Lister:
    """Asks a broker for offsets by kafka-python. librdkafka asks neither for EARLIEST_LOCAL nor for LATEST_TIERED.

    A new client takes twice as much processor time as a question, here and in the broker.
    """

    def __init__(self, rig: Rig) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka import KafkaAdminClient
        self._rig = rig
        self._client = KafkaAdminClient(bootstrap_servers=rig.bootstrap.split(","))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def listed(self, topic: str, partition: int, spec: str) -> int:
        """The answer to a name of kafka-python's OffsetSpec.

        A busy machine can make the controller fence the only broker for a moment. The partition then has no leader.
        """
        from kafka import TopicPartition as TheirPartition
        from kafka.admin import OffsetSpec
        from kafka.errors import UnknownBrokerIdError

        wanted = TheirPartition(topic, partition)
        return retry(
            lambda: int(self._client.list_partition_offsets({wanted: OffsetSpec[spec]})[wanted].offset),
            UnknownBrokerIdError, until=Deadline.after(_TIMEOUT_S), pause_s=0.1, may_pass=lambda error: True,
        )  # fmt: skip

    def offsets(self, topic: str, partition: int) -> Offsets:
        """The start and the end of a partition, on the broker's disk and in the tier."""
        from kafka.errors import IncompatibleBrokerVersion

        earliest, earliest_local, latest = (
            self.listed(topic, partition, spec) for spec in ("EARLIEST", "EARLIEST_LOCAL", "LATEST")
        )
        try:
            latest_tiered = self.listed(topic, partition, "LATEST_TIERED")
        except IncompatibleBrokerVersion:  # before 3.9
            (described,) = self._client.describe_topics([topic])
            copied = latest_copied(self._rig, topic, partition, Uuid(UUID(described["topic_id"]).bytes))
            latest_tiered = max(copied, earliest_local - 1)  # offsets that are gone locally are or were in the tier
        return Offsets(earliest, earliest_local, latest_tiered, latest)

    def is_tiered(self, topic: str, partition: int, *, gone_locally: bool) -> bool:
        """Whether all offsets up to the end are in the tier, and if that is wanted, only there."""
        if gone_locally and self.listed(topic, partition, "EARLIEST_LOCAL") != self.listed(topic, partition, "LATEST"):
            return False  # mostly, so that a wait has half as many questions
        found = self.offsets(topic, partition)
        in_tier = found.latest in (found.latest_tiered + 1, found.earliest)
        return in_tier and (not gone_locally or found.earliest_local == found.latest)


def offsets(rig: Rig, topic: str, partition: int) -> Offsets:
    """The start and the end of a partition, on the broker's disk and in the tier."""
    with closing(_Lister(rig)) as lister:
        return lister.offsets(topic, partition)


def wait_tiered(rig: Rig, topic: str, partitions: Iterable[int] = (0,), *, gone_locally: bool = True) -> None:
    """Wait until all offsets up to the end are in the tier. With `gone_locally`, wait until they are only there."""
    with closing(_Lister(rig)) as lister:
        for partition in partitions:
            is_tiered = partial(lister.is_tiered, topic, partition, gone_locally=gone_locally)
            rig.until(f"{topic}-{partition} tiered", is_tiered)


def make_tiered(rig: Rig, topic: str, count: int, *, partitions: int = 1, **produced: Any) -> None:
    """Make a topic with `count` records in its first partition, all of them in the tier. `produced` as in `produce`."""
    create_topic(rig, topic, partitions)
    produce(rig, topic, count, **produced)
    wait_tiered(rig, topic)


def broker_records(
    rig: Rig,
    topic: str,
    partition: int,
    isolation: str,
    *,
    start: int | None = None,
    stop: int | None = None,
    client: Mapping[str, Any] | None = None,
) -> list[OracleRecord]:
    """All records of [start, stop) that a consumer gets from the broker. By default the whole log."""
    config = {
        "bootstrap.servers": rig.bootstrap,
        "group.id": "oracle",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        **QUIET,
        **(client or {}),
    }
    consumer = Consumer(config)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
        first = low if start is None else start
        last = high if stop is None else min(stop, high)
        consumer.assign([TopicPartition(topic, partition, first)])
        return _drain(consumer, topic, partition, last)
    finally:
        consumer.close()


def is_readable(rig: Rig, topic: str, partition: int) -> bool:
    """Whether the broker gives the whole log. One that has not read its metadata topic yet refuses what is tiered."""
    with suppress(KafkaException):
        broker_records(rig, topic, partition, "read_uncommitted")
        return True
    return False


def _drain(consumer: Consumer, topic: str, partition: int, stop: int) -> list[OracleRecord]:
    records: list[OracleRecord] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        (position,) = consumer.position([TopicPartition(topic, partition)])
        if position.offset >= stop:
            return records
        # The wait is short, because it is used completely if fewer records are left. Markers are no messages.
        for message in consumer.consume(1000, timeout=0.05):
            error = message.error()
            if error is not None:
                if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return records
                raise confluent_kafka.KafkaException(error)
            if int(message.offset() or 0) >= stop:
                return records
            records.append(oracle_record(message))
    raise TimeoutError(f"the broker did not give {topic}-{partition} up to offset {stop}")


def oracle_record(message: Any) -> OracleRecord:
    """A consumer's message as plain values."""
    timestamp_type, timestamp_ms = message.timestamp()
    epoch = message.leader_epoch()
    return OracleRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp_type - 1,  # the client counts from "not available", Kafka from CreateTime
        timestamp_ms,
        message.key(),
        shortened(message.value()),
        tuple((name, value) for name, value in message.headers() or ()),
        -1 if epoch is None else epoch,
    )


def shortened(value: bytes | None) -> bytes | None:
    """The value. If it is long, its size and SHA-256, so that a failed comparison can be read."""
    if value is None or len(value) <= 256:
        return value
    return b"%d bytes, SHA-256 %s" % (len(value), hashlib.sha256(value).hexdigest().encode())


def produce(
    rig: Rig,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    seed: int = 0,
    sizes: Sequence[int] = (0, 4, 24, 200, 700),
    **config: Any,
) -> None:
    """Produce `count` records of every shape: null and empty keys and values, many sizes, headers, odd timestamps.

    `config` goes to the producer. Underscores stand for dots.
    """
    producer = Producer(
        {
            "bootstrap.servers": rig.bootstrap,
            "linger.ms": 5,
            "batch.num.messages": 7,
            **QUIET,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    dice = random.Random(seed)
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    for number in range(count):
        produce_one(producer, topic, partition, number, dice, sizes, note)
    left = producer.flush(_TIMEOUT_S)
    if failures:
        raise KafkaException(failures[0])
    if left:
        raise TimeoutError(f"{left} records were not delivered to {topic}-{partition}")


def produce_one(
    producer: Producer,
    topic: str,
    partition: int,
    number: int,
    dice: random.Random,
    sizes: Sequence[int],
    on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
) -> None:
    """Queue one record whose shape the dice decide."""
    keys = (None, b"", b"k%d" % number, "schlüssel-ключ".encode(), dice.randbytes(16))
    headers: tuple[list[tuple[str, str | bytes | None]], ...] = (
        [],
        [("a", b"1")],
        [("null", None), ("null", b"")],
        [("ключ", dice.randbytes(5)), ("dup", b"1"), ("dup", b"2")],
    )
    size = dice.choice((None, *sizes))
    while True:
        try:
            producer.produce(
                topic,
                key=dice.choice(keys),
                value=None if size is None else dice.randbytes(size),
                headers=dice.choice(headers),
                partition=partition,
                timestamp=1_700_000_000_000 + number * 1000 + dice.randint(-5000, 5000),
                on_delivery=on_delivery,
            )
            return
        except BufferError:
            producer.poll(0.1)

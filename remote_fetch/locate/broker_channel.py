"""An optional channel for what librdkafka cannot ask a broker: where the local log begins, and its size.

ListOffsets has a special timestamp for the first, EARLIEST_LOCAL (-4, KIP-405, Kafka 3.5). librdkafka refuses to send
it. kafka-python sends it; the extra `broker-api` brings it.

Rules of the file:

- `location_channel` is the only other module that imports `kafka`. Both import it only to make a channel.
- Both have their client as a `Connection`.
- A failure here never ends a read. The facts are then unknown, and the reason is reported.
- Every wait has a deadline of this package, because the client has none while it resolves names or shakes hands.
- No message and no log holds a secret.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from remote_fetch.caller_thread import CallerThread
from remote_fetch.errors import ConfigError, MissingExtra
from remote_fetch.locate.broker_settings import map_properties
from remote_fetch.model import TopicIdPartition

__all__ = ["QUIET_LOOP", "BrokerChannel", "Connection", "load_kafka"]

T = TypeVar("T")

QUIET_LOOP: Mapping[str, Any] = {"slow_task_threshold_secs": 0}
"""Settings of kafka-python's network. Else it warns the application of each step of its own loop that takes 0.1 s.

Such a step waits for a name or for `oauth_cb`. On a busy machine each step may take so long.
"""


class BrokerChannel:
    """Asks brokers about the logs on their own disks. Not thread-safe. Connects at the first question.

    `properties` are librdkafka's. `timeout_ms` bounds each call as a whole. `say` is called in the thread of the caller
    with each reason why facts are unknown. `has_failed`: a call failed as a whole, and no further call is made. Raises
    MissingExtra without kafka-python.
    """

    def __init__(self, properties: Mapping[str, Any], *, timeout_ms: int, say: Callable[[str], None]) -> None:
        self._timeout_ms = timeout_ms
        self._say = say
        self.has_failed = False
        self._connection: _AdminConnection | None = None
        kafka = load_kafka()
        try:
            settings = map_properties(properties, kafka.net.sasl.oauth.AbstractTokenProvider)
        except ConfigError as error:
            self._report(error.message)
        else:
            self._connection = _AdminConnection(kafka, settings, timeout_ms)

    def local_starts(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        """The first offset of each partition on its leader's disk. If nothing is tiered, it is the log start offset.

        A partition is missing if its leader does not tell. Never raises for an error of a broker. ListOffsets knows
        topics by name, so the caller checks that the name still stands for the topic id.
        """
        if not partitions:
            return {}
        reasons: dict[str, str] = {}
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        found = self._asked(lambda connection: connection.starts(partitions, deadline_s, reasons))
        if found is None:
            return {}
        for reason in reasons.values():
            self._report(reason)
        return found

    def local_sizes(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        """The bytes of each partition's log on a broker's disk (DescribeLogDirs): of its largest replica.

        A partition is missing if no broker tells, as without the right to describe the cluster. Never raises for an
        error of a broker.
        """
        return (self._asked(lambda connection: connection.sizes(partitions)) if partitions else None) or {}

    def _asked(self, ask: Callable[[_AdminConnection], T]) -> T | None:
        """The answer to one question, asked in the client's thread, within the timeout.

        None, and the reason is reported, if the call failed.
        """
        connection = self._connection
        if connection is None:
            return None
        try:
            return connection.submit(lambda: ask(connection)).result(self._timeout_ms / 1000)
        except TimeoutError:
            connection.abandon()
            self._fail(f"no answer within {self._timeout_ms} ms; the log of kafka-python may say more")
        except Exception as error:  # the client may raise any class
            connection.close()
            self._fail(str(error) or type(error).__name__)
        return None

    def close(self) -> None:
        """Close the connections. Waits at most `timeout_ms`, then leaves the connection behind and reports that."""
        connection, self._connection = self._connection, None
        if connection is not None:
            done, _ = wait([connection.close()], self._timeout_ms / 1000)
            if not done:
                self._report(f"its connection did not close within {self._timeout_ms} ms and is left behind")

    def _fail(self, reason: str) -> None:
        self._connection, self.has_failed = None, True
        self._report(reason)

    def _report(self, reason: str) -> None:
        self._say(f"brokers cannot be asked what they hold on their own disks: {reason}")


def load_kafka() -> Any:
    """kafka-python's package. Raises MissingExtra if it is not installed, or too old."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's use of its own deprecated parts
            import kafka  # noqa: PLC0415 - optional, and slow to load
            import kafka.errors  # noqa: PLC0415
            import kafka.net.sasl.oauth  # noqa: PLC0415

        kafka.OffsetSpec.LATEST_TIERED  # noqa: B018 - an older kafka-python, or another package of that name, has none
    except (ImportError, AttributeError) as error:
        raise MissingExtra(
            "to ask brokers what they have on their own disks needs the extra broker-api (kafka-python 3)",
            extra="broker-api",
        ) from error
    return kafka


class Connection:
    """A client of kafka-python and the daemon thread that calls it. A call that hangs holds up no other thread."""

    def __init__(self, kafka: Any, settings: Mapping[str, Any], timeout_ms: int, name: str) -> None:
        self._kafka = kafka
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._client: Any = None
        self._discretion = _Discretion()
        self._thread = CallerThread(name)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call in the client's thread."""
        return self._thread.submit(call)

    def close(self) -> Future[None]:
        """Close the client after its current call, and end its thread."""
        closed = self.submit(self._close)
        self._thread.end()
        return closed

    def _close(self) -> None:
        client, self._client = self._client, None
        try:
            if client is not None:
                client.close()
        finally:
            self._discretion.end()


class _AdminConnection(Connection):
    """Calls one KafkaAdminClient. `starts` and `sizes` are called in its thread."""

    def __init__(self, kafka: Any, settings: Mapping[str, Any], timeout_ms: int) -> None:
        super().__init__(kafka, settings, timeout_ms, "remote-fetch-broker-channel")
        self._networks: list[Any] = []

    def abandon(self) -> None:
        """Break off the client's current call and close the client, without waiting for either."""
        self.close()
        Thread(target=self._break_off, name="remote-fetch-broker-channel-end", daemon=True).start()

    def _break_off(self) -> None:
        for network in self._networks:
            with suppress(Exception):  # the channel has already reported why it gives up
                network.close()

    def starts(
        self, partitions: Sequence[TopicIdPartition], deadline_s: float, reasons: dict[str, str]
    ) -> dict[TopicIdPartition, int]:
        """The first offsets on the leaders' disks. `reasons` gets a text for each kind of reason why one is unknown."""
        self._client = self._client or self._open()
        wanted = {
            partition: self._kafka.TopicPartition(partition.topic, partition.partition) for partition in partitions
        }
        found = self._offsets(sorted(set(wanted.values())), deadline_s, reasons)
        return {partition: found[name] for partition, name in wanted.items() if found.get(name, -1) >= 0}

    def sizes(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        """The bytes of the largest replica of each partition. All brokers are asked."""
        self._client = self._client or self._open()
        wanted: dict[str, list[int]] = {}
        for partition in partitions:
            wanted.setdefault(partition.topic, []).append(partition.partition)
        sizes: dict[tuple[str, int], int] = {}
        for broker in self._client.describe_log_dirs(wanted):
            for topic, one in _replicas(broker):
                name = topic, one["partition_index"]
                sizes[name] = max(sizes.get(name, 0), one["partition_size"])
        names = {partition: (partition.topic, partition.partition) for partition in partitions}
        return {partition: sizes[name] for partition, name in names.items() if name in sizes}

    def _open(self) -> Any:
        """Create a client and connect it. The timeout of this channel limits the connection and each request.

        If this fails, all connections are closed.
        """

        def remembered(**configs: Any) -> Any:
            network = self._kafka.KafkaAdminClient.DEFAULT_CONFIG["kafka_client"]
            self._networks.append(network(**{**configs, **QUIET_LOOP}))
            return self._networks[-1]

        self._discretion.begin()
        try:
            return self._kafka.KafkaAdminClient(
                **self._settings,
                bootstrap_timeout_ms=self._timeout_ms,
                request_timeout_ms=self._timeout_ms,
                kafka_client=remembered,
            )
        except BaseException:
            self._break_off()
            raise

    def _offsets(self, names: list[Any], deadline_s: float, reasons: dict[str, str]) -> dict[Any, int]:
        """The answers of the leaders. If one partition fails, the client raises for all. Each half is then asked."""
        if time.monotonic() > deadline_s:
            raise TimeoutError
        errors, spec = self._kafka.errors, self._kafka.OffsetSpec.EARLIEST_LOCAL
        try:
            found = self._client.list_partition_offsets(dict.fromkeys(names, spec))
        except errors.UnsupportedVersionError:
            reasons[f"{spec.name} version"] = f"they are too old for {spec.name}"
            return {}
        except (errors.BrokerResponseError, errors.UnknownBrokerIdError) as error:
            if len(names) == 1:
                ((topic, partition),) = names
                reasons.setdefault(type(error).__name__, f"{error} [{topic}-{partition}]")
                return {}
            half = len(names) // 2
            first = self._offsets(names[:half], deadline_s, reasons)
            return first | self._offsets(names[half:], deadline_s, reasons)
        return {name: at.offset for name, at in found.items()}


def _replicas(broker: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The topic and the replica of each log of one broker's answer. A copy that a move is making does not count."""
    for folder in broker["log_dirs"]:
        for topic in folder["topics"]:
            yield from ((topic["name"], one) for one in topic["partitions"] if not one["is_future_key"])


class _Discretion(logging.Filter):
    """Filters the client's log while a connection is open.

    Its requests may carry credentials and stay out of the debug log. Its dozen lines at INFO describe a connection that
    the application does not know. They are logged only if its loggers are at DEBUG.
    """

    _WITH_REQUESTS = ("kafka.net.connection", "kafka.protocol.parser")
    _LOGGERS = (
        *_WITH_REQUESTS,
        *("kafka.admin.client", "kafka.cluster", "kafka.net.manager", "kafka.net.selector", "kafka.net.transport"),
    )

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record may be logged."""
        if record.levelno <= logging.DEBUG:
            return record.name not in self._WITH_REQUESTS
        return record.levelno > logging.INFO or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)

    def begin(self) -> None:
        """Filter the client's loggers from now on."""
        for name in self._LOGGERS:
            logging.getLogger(name).addFilter(self)

    def end(self) -> None:
        """Stop filtering the client's loggers."""
        for name in self._LOGGERS:
            logging.getLogger(name).removeFilter(self)

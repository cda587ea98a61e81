"""Asks partition leaders where an offset lies in the tier: a Fetch with the fields of KIP-1254 (KIP-1248).

librdkafka sends no Fetch of another version than its own. kafka-python does; the extra `broker-api` brings it.

Rules of the file:

- `broker_channel` is the only other module that imports `kafka`. Both import it only to make a channel.
- A request goes to a leader that announces the schema's version of Fetch (ApiVersions). Another leader is never asked.
- An answer is believed for the topic id, partition and offset of the request, and for nothing else.
- Every wait has a deadline of this package. No message holds a secret, and no log has the client's requests.
- kafka-python knows one class of responses for each kind of request, in the whole process. The application's own
  clients keep theirs: only a header of this module leads to the class with the fields of the schema.
"""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any, Protocol

from remote_fetch.errors import ConfigError, Unlocatable
from remote_fetch.locate.broker_channel import Discretion, load_kafka
from remote_fetch.locate.broker_settings import map_properties
from remote_fetch.locate.caller_thread import CallerThread
from remote_fetch.locate.location_schema import LocationSchema
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid

__all__ = ["Answer", "Location", "LocationChannel", "LocationsUnsupported", "Locations"]

_FETCH = 1
_EARLIEST_LOCAL = -4
_PAUSE_S = 0.1
_MAX_RESPONSE_BYTES = 129 << 20
"""A leader that sends records sends at least one batch, however small the limit of the request is."""
_MAX_METADATA_BYTES = 64 << 10
_MAX_ABORTED = 1_000_000
_DEFINING = Lock()

NO_ERROR, OFFSET_OUT_OF_RANGE, UNSUPPORTED_VERSION = 0, 1, 35
_PASSING = frozenset({3, 5, 6, 9, 13, 74, 75, 78, 100, 103})
"""Errors of a leader that has changed, or of metadata that has not arrived yet: the leader is looked up again."""


class LocationsUnsupported(Exception):
    """The leader does not speak the version of Fetch that has locations. The text says what it speaks."""


@dataclass(frozen=True, slots=True)
class Location:
    """The remote segment that holds an offset, as a leader told it. None: it did not tell."""

    segment_id: Uuid
    custom_metadata: bytes | None
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A leader's answer for one offset of a partition.

    - `location` None: the leader would serve the offset itself, as in any Fetch; `has_records` if it has done so.
    - `aborted` are producer id and first offset of the aborted transactions that have an offset from the asked one to
      the end of the segment. Empty under read_uncommitted.
    - `last_stable_offset`, `high_watermark`, `log_start_offset`: as in any Fetch, -1 if unknown.
    """

    location: Location | None
    aborted: tuple[tuple[int, int], ...]
    last_stable_offset: int
    high_watermark: int
    log_start_offset: int
    has_records: bool = False


class Locations(Protocol):
    """What a locator asks brokers. Not thread-safe."""

    def ask(self, partition: TopicIdPartition, offset: int, isolation: IsolationLevel) -> Answer:
        """Where the offset lies. Raises LocationsUnsupported, and Unlocatable if no leader answers."""

    def earliest_local(self, partition: TopicIdPartition) -> int | None:
        """The first offset on the leader's own disk (ListOffsets, EARLIEST_LOCAL). None: it does not tell.

        Raises Unlocatable if no leader answers.
        """

    def reconnect(self) -> None:
        """Use new connections from now on, because the credentials have changed."""

    def close(self) -> None:
        """Close the connections."""


class LocationChannel:
    """Asks the leaders of a cluster. `properties` gives librdkafka's current ones. `timeout_ms` bounds each call.

    Connects at the first question. Raises MissingExtra without kafka-python, and ConfigError for a property that
    kafka-python has no counterpart of.
    """

    def __init__(self, properties: Callable[[], Mapping[str, Any]], schema: LocationSchema, *, timeout_ms: int) -> None:
        self._kafka = load_kafka()
        self._messages = _Messages(schema)
        self._properties = properties
        self._timeout_ms = timeout_ms
        self._connection: _Connection | None = None
        self._settings()

    def ask(self, partition: TopicIdPartition, offset: int, isolation: IsolationLevel) -> Answer:
        """As `Locations.ask`."""
        request = self._messages.request(partition, offset, isolation)
        response = self._call(partition, request)
        return self._messages.answer(response, partition, offset)

    def earliest_local(self, partition: TopicIdPartition) -> int | None:
        """As `Locations.earliest_local`."""
        from kafka.protocol.consumer import ListOffsetsRequest  # noqa: PLC0415 - optional, as in `load_kafka`

        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                            partition_index=partition.partition, current_leader_epoch=-1, timestamp=_EARLIEST_LOCAL
                        )
                    ],
                )
            ],
            min_version=8,
        )
        try:
            response = self._call(partition, request)
        except LocationsUnsupported:
            return None
        found = [each for topic in response.topics for each in topic.partitions]
        if len(found) != 1 or found[0].error_code != NO_ERROR or found[0].offset < 0:
            return None
        return int(found[0].offset)

    def reconnect(self) -> None:
        """As `Locations.reconnect`."""
        self.close()

    def close(self) -> None:
        """As `Locations.close`. Waits at most `timeout_ms`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            wait([connection.close()], self._timeout_ms / 1000)

    def _call(self, partition: TopicIdPartition, request: Any) -> Any:
        """The response to a request of the leader. Raises LocationsUnsupported and Unlocatable."""
        if self._connection is None:
            self._connection = _Connection(self._kafka, self._settings(), self._timeout_ms)
        connection = self._connection
        try:
            return connection.send(partition, request, self._messages).result(self._timeout_ms / 1000)
        except LocationsUnsupported:
            raise
        except TimeoutError:
            connection.abandon()
            self._connection = None
            raise self._unanswered(partition, f"no answer within {self._timeout_ms} ms") from None
        except Exception as error:  # the client may raise any class
            connection.close()
            self._connection = None
            raise self._unanswered(partition, str(error) or type(error).__name__) from error

    def _unanswered(self, partition: TopicIdPartition, why: str) -> Unlocatable:
        return Unlocatable(
            f"the brokers do not answer where offsets lie in the tier: {why}",
            topic=partition.topic,
            partition=partition.partition,
        )

    def _settings(self) -> dict[str, Any]:
        try:
            mapped = map_properties(self._properties(), self._kafka.net.sasl.oauth.AbstractTokenProvider)
        except (OSError, ValueError) as error:  # a file of keys that is missing or not a file of keys
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"remote.locator=broker cannot use the TLS settings: {error}", key="ssl") from error
        if mapped.without_counterpart:
            names = ", ".join(mapped.without_counterpart)
            raise ConfigError(
                f"remote.locator=broker: kafka-python has no counterpart of what is configured: {names}",
                key=mapped.without_counterpart[0],
                hint="Use remote.locator=metadata-topic, which asks through librdkafka",
            )
        return mapped.settings


class _Connection:
    """One client of kafka-python, and the thread that calls it."""

    def __init__(self, kafka: Any, settings: Mapping[str, Any], timeout_ms: int) -> None:
        self._kafka = kafka
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._client: Any = None
        self._discretion = Discretion()
        self._thread = CallerThread("remote-fetch-location-channel")

    def send(self, partition: TopicIdPartition, request: Any, messages: _Messages) -> Future[Any]:
        """Send a request to the partition's leader, in the client's thread."""
        deadline_s = time.monotonic() + self._timeout_ms / 1000
        return self._thread.submit(lambda: self._send(partition, request, messages, deadline_s))

    def close(self) -> Future[None]:
        """Close the client after its current call, and end its thread."""
        closed = self._thread.submit(self._close)
        self._thread.end()
        return closed

    def abandon(self) -> None:
        """Break off the client's current call, without waiting for it."""
        self.close()
        Thread(target=self._break_off, name="remote-fetch-location-channel-end", daemon=True).start()

    def _break_off(self) -> None:
        client = self._client
        if client is not None:
            with suppress(Exception):  # the channel has already reported why it gives up
                client.close()

    def _open(self) -> Any:
        from kafka.net.compat import KafkaNetClient  # noqa: PLC0415 - optional, as in `load_kafka`

        self._discretion.begin()
        client = self._client = KafkaNetClient(
            **self._settings,
            request_timeout_ms=self._timeout_ms,
            receive_message_max_bytes=_MAX_RESPONSE_BYTES,
            reconnect_backoff_max_ms=1000,
        )
        client.check_version(timeout_ms=self._timeout_ms)
        return client

    def _close(self) -> None:
        client, self._client = self._client, None
        try:
            if client is not None:
                client.close()
        finally:
            self._discretion.end()

    def _send(self, partition: TopicIdPartition, request: Any, messages: _Messages, deadline_s: float) -> Any:
        """The leader's response. After an error that may pass, the leader is looked up again until the deadline."""
        client = self._client or self._open()
        errors = self._kafka.errors
        is_new = False
        while True:
            error: Exception
            try:
                node = self._leader(client, partition, refresh=is_new)
                client.await_ready(node, timeout_ms=max((deadline_s - time.monotonic()) * 1000, 1))
                messages.check_version(client._manager._conns[node].broker_version_data.api_versions, request, node)
                response = client.send_and_receive(node, request, timeout_ms=self._timeout_ms)
                code = messages.error_code(response)
                if code not in _PASSING:
                    return response
                error = errors.for_code(code)()
            except (errors.KafkaConnectionError, errors.NodeNotReadyError, KeyError) as passing:
                error = passing
            if time.monotonic() + _PAUSE_S > deadline_s:
                raise error
            time.sleep(_PAUSE_S)
            is_new = True

    def _leader(self, client: Any, partition: TopicIdPartition, *, refresh: bool) -> Any:
        """The node id of a partition's leader. Raises NodeNotReadyError if it has none."""
        cluster = client.cluster
        name = self._kafka.TopicPartition(partition.topic, partition.partition)
        added = cluster.add_topic(partition.topic)
        if refresh or cluster.leader_for_partition(name) is None:
            client.poll(timeout_ms=self._timeout_ms, future=cluster.request_update() if refresh else added)
        node = cluster.leader_for_partition(name)
        if node is None or node == -1:
            raise self._kafka.errors.NodeNotReadyError(f"{partition.topic}-{partition.partition} has no leader")
        return node


class _Messages:
    """Request and response of Fetch with the fields of a schema, as classes of kafka-python."""

    def __init__(self, schema: LocationSchema) -> None:
        self._schema = schema
        self._request, self._response = _define(schema)

    def check_version(self, api_versions: Mapping[int, tuple[int, int]], request: Any, node: Any) -> None:
        """Raise LocationsUnsupported if a broker does not announce the version of Fetch that has locations."""
        if request.API_KEY != _FETCH:
            return
        first, last = api_versions.get(_FETCH, (0, -1))
        if not first <= self._schema.fetch_version <= last:
            raise LocationsUnsupported(
                f"broker {node} speaks Fetch {first} to {last}, and locations need Fetch {self._schema.fetch_version}"
            )

    def request(self, partition: TopicIdPartition, offset: int, isolation: IsolationLevel) -> Any:
        """A request for the location of one offset. It asks for one byte, which is a batch if records come."""
        kind, added = self._request, {field.role: field for field in self._schema.request}
        values = {"location_requested": True, "supported_formats": list(self._schema.storage_formats)}

        def extra(struct: str) -> dict[str, Any]:
            return {
                _attribute(kind, field.name): values[role] for role, field in added.items() if field.struct == struct
            }

        topic = kind.FetchTopic
        return kind(
            version=self._schema.fetch_version,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            isolation_level=1 if isolation is IsolationLevel.READ_COMMITTED else 0,
            topics=[
                topic(
                    version=self._schema.fetch_version,
                    topic_id=uuid.UUID(bytes=partition.topic_id.raw),
                    partitions=[
                        topic.FetchPartition(
                            version=self._schema.fetch_version,
                            partition=partition.partition,
                            fetch_offset=offset,
                            partition_max_bytes=1,
                            **extra("FetchPartition"),
                        )
                    ],
                    **extra("FetchTopic"),
                )
            ],
            forgotten_topics_data=[],
            **extra("FetchRequest"),
        )

    @staticmethod
    def error_code(response: Any) -> int:
        """The first error of a response, 0 if there is none."""
        codes = [getattr(response, "error_code", 0)]
        for topic in getattr(response, "responses", None) or getattr(response, "topics", None) or ():
            codes += [partition.error_code for partition in topic.partitions]
        return next((int(code) for code in codes if code), NO_ERROR)

    def answer(self, response: Any, partition: TopicIdPartition, offset: int) -> Answer:
        """The answer that a response holds. Raises LocationsUnsupported, and Unlocatable for an error or nonsense."""
        code = self.error_code(response)
        if code == UNSUPPORTED_VERSION:
            raise LocationsUnsupported(f"a broker refuses Fetch {self._schema.fetch_version} (UNSUPPORTED_VERSION)")
        if code not in (NO_ERROR, OFFSET_OUT_OF_RANGE):
            raise _unusable(partition, offset, f"error {code} of the leader")
        topics = response.responses
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            raise _unusable(partition, offset, "a response for another number of partitions")
        (topic,), (found,) = topics, topics[0].partitions
        topic_id = topic.topic_id.bytes
        if topic_id != partition.topic_id.raw or found.partition_index != partition.partition:
            raise _unusable(partition, offset, f"a response for {Uuid(topic_id)}, partition {found.partition_index}")
        aborted = tuple((each.producer_id, each.first_offset) for each in found.aborted_transactions or ())
        if len(aborted) > _MAX_ABORTED or any(producer < 0 or first < 0 for producer, first in aborted):
            raise _unusable(partition, offset, "a list of aborted transactions that no broker has")
        location = None if code else self._location(found, partition, offset)
        return Answer(
            location,
            aborted,
            found.last_stable_offset,
            found.high_watermark,
            found.log_start_offset,
            has_records=bool(found.records),
        )

    def _location(self, found: Any, partition: TopicIdPartition, offset: int) -> Location | None:
        told = {
            field.role: getattr(found, _attribute(self._response, field.name))
            for field in self._schema.response
            if field.struct == "PartitionData"
        }
        segment_id = told["segment_id"]
        if segment_id is None or segment_id.int == 0:
            return None
        custom_metadata = told["custom_metadata"]
        if custom_metadata is not None and len(custom_metadata) > _MAX_METADATA_BYTES:
            raise _unusable(partition, offset, f"custom metadata of {len(custom_metadata)} bytes")
        numbers = {
            role: value if isinstance(value, int) and value >= 0 else None
            for role, value in told.items()
            if role not in ("segment_id", "custom_metadata")
        }
        return Location(
            Uuid(segment_id.bytes),
            None if custom_metadata is None else bytes(custom_metadata),
            numbers.get("start_offset"),
            numbers.get("end_offset"),
            numbers.get("size_bytes"),
        )


def _define(schema: LocationSchema) -> tuple[Any, Any]:
    """The classes of request and response. Raises ConfigError if a schema does not fit Kafka's own."""
    from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry  # noqa: PLC0415 - as in `load_kafka`
    from kafka.protocol.api_message import ApiMessage  # noqa: PLC0415 - as above
    from kafka.protocol.consumer import FetchResponse as usual  # noqa: PLC0415 - as above

    def patch(message: Any) -> Any:
        return staticmethod(lambda _, definition: schema.apply(message, definition))

    class FetchRequest(ApiMessage):  # type: ignore[misc] # the name chooses the definition
        json_patch = patch("request")

        def with_header(self, correlation_id: int = 0, client_id: str = "remote-fetch") -> None:
            super().with_header(correlation_id=correlation_id, client_id=client_id)
            self._header = Header(
                request_api_key=self.API_KEY,
                request_api_version=self.API_VERSION,
                correlation_id=correlation_id,
                client_id=client_id,
            )

    with _DEFINING:
        try:

            class FetchResponse(ApiMessage):  # type: ignore[misc] # as above
                json_patch = patch("response")

            response = FetchResponse[schema.fetch_version]
        finally:  # to define a class, or that of a version, registers it
            ResponseClassRegistry.register_response_class(weakref.proxy(usual))

    class Header(RequestHeader, init=False):  # type: ignore[misc]
        def get_response_class(self) -> Any:
            return response

    return FetchRequest, FetchResponse


def _attribute(kind: Any, name: str) -> str:
    """The name of a field as an attribute of kafka-python's classes."""
    return str(kind._struct.underscore_name(name))


def _unusable(partition: TopicIdPartition, offset: int, what: str) -> Unlocatable:
    return Unlocatable(
        f"the answer to where an offset lies in the tier cannot be used: {what}",
        first=offset,
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
    )

"""Asks partition leaders where an offset lies in the tier: a Fetch with the fields of KIP-1254 (KIP-1248).

librdkafka sends no Fetch of another version than its own. kafka-python does; the extra `broker-api` brings it.

Rules of the file:

- `broker_channel` is the only other module that imports `kafka`. Both import it only to make a channel.
- A request goes to a leader that announces the schema's version of Fetch (ApiVersions). Another leader is never asked.
- Every wait has a deadline of this package. No message holds a secret, and no log has the client's requests.
- kafka-python knows one class of responses for each kind of request, in the whole process. The application's own
  clients keep theirs: only a header of this module leads to the class with the fields of the schema.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any

from remote_fetch.errors import Cancelled, ConfigError, Unlocatable
from remote_fetch.locate.broker_channel import QUIET_LOOP, Connection, load_kafka
from remote_fetch.locate.broker_settings import map_properties
from remote_fetch.locate.location_messages import LocationMessages
from remote_fetch.locate.location_schema import LocationSchema
from remote_fetch.locate.locations import Answer, LocationsUnsupported
from remote_fetch.model import IsolationLevel, TopicIdPartition

__all__ = ["LocationChannel"]

_EARLIEST_LOCAL = -4
_PAUSE_S = 0.1
_PATIENCE = 0.8
"""The part of a call's time in which a leader is looked up again. The rest is for the last answer."""
_REST_S = 10.0
"""How long no call is made after a call that failed as a whole."""
_MAX_RESPONSE_BYTES = 129 << 20
"""A leader that sends records sends at least one batch, however small the limit of the request is."""
_DEFINING = Lock()

_PASSING = frozenset({3, 5, 6, 9, 13, 74, 75, 78, 100, 103})
"""Errors of a leader that has changed, or of metadata that has not arrived yet: the leader is looked up again."""


class LocationChannel:
    """Asks the leaders of a cluster. `properties` gives librdkafka's current ones. `timeout_ms` bounds each call.

    Connects at the first question. Raises MissingExtra without kafka-python, and ConfigError for a property that
    kafka-python has no counterpart of.
    """

    def __init__(self, properties: Callable[[], Mapping[str, Any]], schema: LocationSchema, *, timeout_ms: int) -> None:
        self._kafka = load_kafka()
        self._messages = LocationMessages(schema, *_define(schema))
        self._properties = properties
        self._timeout_ms = timeout_ms
        self._connection: _NetConnection | None = None
        self._changing = Lock()
        self._is_closed = False
        self._rest_until_s, self._failure = float("-inf"), ""
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
        if len(found) != 1 or found[0].error_code != 0 or found[0].offset < 0:
            return None
        return int(found[0].offset)

    def reconnect(self) -> None:
        """As `Locations.reconnect`. Waits at most `timeout_ms`. Any thread may call it."""
        with self._changing:
            connection, self._connection = self._connection, None
            self._rest_until_s = float("-inf")
        if connection is not None:
            wait([connection.close()], self._timeout_ms / 1000)

    def close(self) -> None:
        """As `Locations.close`, with the waits of `reconnect`. Later questions are refused."""
        self._is_closed = True
        self.reconnect()

    def _connected(self) -> _NetConnection:
        with self._changing:
            if self._is_closed:
                raise Cancelled("the session was closed")
            if self._connection is None:
                self._connection = _NetConnection(self._kafka, self._settings(), self._timeout_ms)
            return self._connection

    def _call(self, partition: TopicIdPartition, request: Any) -> Any:
        """The response to a request of the leader. Raises LocationsUnsupported and Unlocatable."""
        if time.monotonic() < self._rest_until_s:
            raise _unanswered(partition, self._failure)
        connection = self._connected()
        try:
            return connection.send(partition, request, self._messages).result(self._timeout_ms / 1000)
        except LocationsUnsupported:
            raise
        except TimeoutError:
            # It is closed after the call, which ends later: names are resolved without a deadline.
            raise self._rest(connection, partition, f"no answer within {self._timeout_ms} ms") from None
        except Exception as error:  # the client may raise any class
            raise self._rest(connection, partition, str(error) or type(error).__name__) from error

    def _rest(self, connection: _NetConnection, partition: TopicIdPartition, why: str) -> Unlocatable:
        """Close a connection, and call no broker for a while if it is the current one. Return the error to raise."""
        connection.close()
        with self._changing:
            if self._connection is connection:  # else it is one from before `reconnect`
                self._connection, self._rest_until_s, self._failure = None, time.monotonic() + _REST_S, why
        return _unanswered(partition, why)

    def _settings(self) -> dict[str, Any]:
        try:
            return map_properties(self._properties(), self._kafka.net.sasl.oauth.AbstractTokenProvider)
        except ConfigError as error:
            raise ConfigError(f"remote.locator=broker: {error.message}", key=error.key, hint=error.hint) from error


def _unanswered(partition: TopicIdPartition, why: str) -> Unlocatable:
    text = f"the brokers do not answer where offsets lie in the tier: {why}"
    return Unlocatable(text, **partition.place)


class _NetConnection(Connection):
    """Calls one KafkaNetClient."""

    def __init__(self, kafka: Any, settings: Mapping[str, Any], timeout_ms: int) -> None:
        super().__init__(kafka, settings, timeout_ms, "remote-fetch-location-channel")

    def send(self, partition: TopicIdPartition, request: Any, messages: LocationMessages) -> Future[Any]:
        """Send a request to the partition's leader, in the client's thread."""
        deadline_s = time.monotonic() + _PATIENCE * self._timeout_ms / 1000
        return self.submit(lambda: self._send(partition, request, messages, deadline_s))

    def _open(self) -> Any:
        from kafka.net.compat import KafkaNetClient  # noqa: PLC0415 - optional, as in `load_kafka`

        self._discretion.begin()
        client = self._client = KafkaNetClient(
            **self._settings,
            **QUIET_LOOP,
            request_timeout_ms=self._timeout_ms,
            socket_connection_setup_timeout_ms=self._timeout_ms,
            receive_message_max_bytes=_MAX_RESPONSE_BYTES,
            reconnect_backoff_max_ms=1000,
        )
        # KafkaNetClient (3.0) does not hand this setting on. Else a look for the leader may create a topic.
        client.cluster.config["allow_auto_create_topics"] = False
        client.check_version(timeout_ms=self._timeout_ms)
        return client

    def _send(self, partition: TopicIdPartition, request: Any, messages: LocationMessages, deadline_s: float) -> Any:
        """The leader's response. After an error that may pass, the leader is looked up again until the deadline."""
        client = self._client or self._open()
        errors = self._kafka.errors
        is_new = False
        while True:
            is_last = time.monotonic() + _PAUSE_S > deadline_s
            try:
                node = self._leader(client, partition, refresh=is_new)
                client.await_ready(node, timeout_ms=max((deadline_s - time.monotonic()) * 1000, 1))
                messages.check_version(client._manager._conns[node].broker_version_data.api_versions, request, node)
                response = client.send_and_receive(node, request, timeout_ms=self._timeout_ms)
                if is_last or messages.error_code(response) not in _PASSING:
                    return response
            except (errors.KafkaConnectionError, errors.NodeNotReadyError, KeyError):
                if is_last:
                    raise
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
            raise self._kafka.errors.NodeNotReadyError(f"{partition.topic_partition} has no leader")
        return node


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

            defined: Any = FetchResponse
            response = defined[schema.fetch_version]
        finally:  # to define a class, or that of a version, registers it
            ResponseClassRegistry.register_response_class(weakref.proxy(usual))

    class Header(RequestHeader, init=False):  # type: ignore[misc,call-arg]
        def get_response_class(self) -> Any:
            return response

    return FetchRequest, FetchResponse

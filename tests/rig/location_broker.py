"""A double of a broker that supports KIP-1254's Fetch: a proxy that asks a real broker.

Rules of the file:

- Bytes are forwarded unchanged, with three exceptions: ApiVersions announces one more version of Fetch, the proxy's
  address replaces the real broker's, and the proxy answers a Fetch of that version itself. Fetches are counted.
- A location is built from what the real broker has: its metadata topic, its answer to a Fetch at the same offset (high
  watermark, last stable offset, log start, topic id), EARLIEST_LOCAL, and the transaction indexes of its tier and disk.
- The new fields are written and read here by hand, as tagged fields of Kafka's protocol, not by the product's code.
- Loopback only. Connections, frames and waits are bounded. `close` ends every thread.
"""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.api_key import ApiKey
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse

from remote_fetch.formats.indexes import parse_transaction_index
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.metadata_replay import MetadataTopic
from remote_fetch.locate.metadata_topic import MetadataTopicLocator
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition
from tests.rig.ports import free_port
from tests.rig.rig import Rig

__all__ = ["ALL_TAGS", "LocationBroker", "located"]

NEW_VERSION, LAST_VERSION = 19, 18
"""The version of Fetch with locations, and the version with which the real broker is asked."""
ALL_TAGS = frozenset({5, 6, 7})
"""The tags beyond KIP-1254's fields: start offset, end offset, size."""
SEGMENT_ID_TAG, METADATA_TAG, START_TAG, END_TAG, SIZE_TAG = 3, 4, 5, 6, 7
FORMATS_TAG, REQUESTED_TAG = 2, 2

_FETCH, _METADATA, _FIND_COORDINATOR, _API_VERSIONS, _DESCRIBE_CLUSTER, _DESCRIBE_TOPICS = 1, 3, 10, 18, 60, 75
_WITH_ADDRESSES = frozenset({_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER, _DESCRIBE_TOPICS})
_EARLIEST_LOCAL = -4
_UNSUPPORTED_VERSION = 35
_MOST_CONNECTIONS = 64
_MOST_BYTES = 64 << 20
_TIMEOUT_S = 30.0
_NUMBERS = itertools.count(1)


@dataclass
class LocationBroker:
    """The double. `bootstrap` is its address. The fields may be changed while it runs.

    - `is_old`: it announces no new version.
    - `refuses`: it announces the new version, and answers it with UNSUPPORTED_VERSION.
    - `ignores`: it reads the new version as the one before, without the new fields.
    - `formats` are the storage formats that its segments have.
    - `tags` are the fields beyond KIP-1254's that it fills.
    - `custom_metadata` replaces a segment's custom metadata from the metadata topic.
    - `errors` are the error codes of the next answers of the new version, for example after a change of the leader.
    - `fetches` counts the requests by version, `locations` those that were answered with a location.
    - `records_bytes` are the bytes of all responses to other Fetch requests.
    """

    rig: Rig
    is_old: bool = False
    refuses: bool = False
    ignores: bool = False
    formats: frozenset[str] = frozenset({"ApacheKafkaV1"})
    tags: Collection[int] = ALL_TAGS
    errors: list[int] = field(default_factory=list)
    custom_metadata: Any = None
    fetches: Counter[int] = field(default_factory=Counter)
    locations: int = 0
    records_bytes: int = 0
    requests: list[tuple[int, bool, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        host, _, port = self.rig.bootstrap.partition(":")
        self._broker = host, int(port)
        self._port = free_port()
        self._lock = threading.Lock()
        cluster = Cluster({"bootstrap.servers": self.rig.bootstrap, "log_level": 0}, timeout_ms=30_000)
        self._cluster = cluster
        self._locator = MetadataTopicLocator(cluster, MetadataTopic(cluster, timeout_ms=30_000), say=lambda text: None)
        self._partitions: dict[tuple[bytes, int], TopicIdPartition] = {}
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._server = socket.create_server(("127.0.0.1", self._port))
        self._start(self._accept)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def close(self) -> None:
        self._is_closed = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_TIMEOUT_S)
        self._cluster.close()

    # ------------------------------------------------------------------------------------------------- connections

    def _start(self, run: Any, *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, name=f"location-broker-{next(_NUMBERS)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._is_closed:
                client, _ = self._server.accept()
                if len(self._sockets) >= 2 * _MOST_CONNECTIONS:
                    client.close()
                    continue
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        """Serve one connection. A request is answered before the next one is read, as in brokers."""
        with client, socket.create_connection(self._broker, timeout=_TIMEOUT_S) as broker, suppress(OSError, EOFError):
            client.settimeout(10 * _TIMEOUT_S)
            self._sockets |= {client, broker}
            try:
                while not self._is_closed:
                    _send(client, self._answer(broker, _receive(client)))
            finally:
                self._sockets -= {client, broker}

    def _answer(self, broker: socket.socket, request: bytes) -> bytes:
        key, version = struct.unpack_from(">hh", request)
        if key == _FETCH:
            with self._lock:
                self.fetches[version] += 1
            if version == NEW_VERSION:
                return self._answer_fetch(broker, request)
        _send(broker, request)
        response = _receive(broker)
        if key == _FETCH:
            with self._lock:
                self.records_bytes += len(response)
        if key in _WITH_ADDRESSES:
            response = response.replace(_address(*self._broker), _address(self._broker[0], self._port))
        return response if key != _API_VERSIONS or self.is_old else _announcing(response, version)

    # ------------------------------------------------------------------------------------------------------- Fetch

    def _answer_fetch(self, broker: socket.socket, request: bytes) -> bytes:
        """The answer to a Fetch of the new version, for one partition."""
        parsed = FetchRequest.decode(request, version=LAST_VERSION, header=True)
        (topic,) = parsed.topics
        (wanted,) = topic.partitions
        is_requested = (wanted.unknown_tags or {}).get(f"_{REQUESTED_TAG}") == b"\x01"
        formats = _strings((parsed.unknown_tags or {}).get(f"_{FORMATS_TAG}", b"\x01"))
        with self._lock:
            self.requests.append((wanted.fetch_offset, is_requested, formats))
        correlation = request[4:8]
        if self.refuses:
            empty = FetchResponse(
                version=LAST_VERSION, throttle_time_ms=0, error_code=_UNSUPPORTED_VERSION, session_id=0, responses=[]
            )
            return correlation + b"\x00" + bytes(empty.encode())
        usual = self._usual(broker, parsed)
        if self.errors:
            (failed,) = usual.responses[0].partitions
            failed.error_code, failed.records = self.errors.pop(0), None
            return correlation + b"\x00" + bytes(usual.encode())
        segment = None
        if is_requested and not self.ignores and self.formats.intersection(formats):
            segment = self._segment(broker, topic.topic_id.bytes, wanted.partition, wanted.fetch_offset)
        if segment is None:
            return correlation + b"\x00" + bytes(usual.encode())
        with self._lock:
            self.locations += 1
        (answered,) = usual.responses[0].partitions
        answered.records = None
        answered.aborted_transactions = []
        if parsed.isolation_level == 1:
            kind = type(answered).AbortedTransaction
            answered.aborted_transactions = [
                kind(version=LAST_VERSION, producer_id=producer, first_offset=first)
                for producer, first in self._aborted(segment, wanted.fetch_offset)
            ]
        body = bytes(usual.encode())
        # The message ends with the empty lists of tagged fields of partition, topic and response.
        assert body.endswith(b"\x00\x00\x00")
        return correlation + b"\x00" + body[:-3] + self._tagged(segment) + b"\x00\x00"

    def _usual(self, broker: socket.socket, parsed: Any) -> Any:
        """The real broker's answer to the same question, without the new fields."""
        parsed.unknown_tags = None
        parsed.topics[0].partitions[0].unknown_tags = None
        parsed.API_VERSION = LAST_VERSION
        parsed.with_header(correlation_id=1, client_id="location-broker")
        _send(broker, parsed.encode(header=True))
        return FetchResponse.decode(_receive(broker), version=LAST_VERSION, header=True)

    def _segment(
        self, broker: socket.socket, topic_id: bytes, number: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The segment with an offset that the real broker no longer has on its own disk."""
        with self._lock:
            partition = self._partition(topic_id, number)
            if offset >= _earliest_local(broker, partition):
                return None
            return self._locator.refresh(partition).covering(offset, Lineage.unknown())

    def _partition(self, topic_id: bytes, number: int) -> TopicIdPartition:
        if (topic_id, number) not in self._partitions:
            for known in self._locator.partitions(None):
                self._partitions[known.topic_id.raw, known.partition] = known
        return self._partitions[topic_id, number]

    def _aborted(self, segment: RemoteLogSegmentMetadata, offset: int) -> list[tuple[int, int]]:
        partition = segment.topic_id_partition
        tier = self.rig.folder_in_tier(partition.topic, partition.partition, str(partition.topic_id))
        disk = self.rig.remote.parent / "data" / f"{partition.topic}-{partition.partition}"
        found: set[tuple[int, int]] = set()
        for file in (*tier.glob("*.txnindex"), *disk.glob("*.txnindex")):
            with suppress(FileNotFoundError):
                for entry in parse_transaction_index(file.read_bytes()):
                    if entry.last_offset >= offset and entry.first_offset <= segment.end_offset:
                        found.add((entry.first_offset, entry.producer_id))
        return [(producer, first) for first, producer in sorted(found)]

    def _tagged(self, segment: RemoteLogSegmentMetadata) -> bytes:
        """The tagged fields of a location: their count, then tag, size and value of each."""
        metadata = segment.custom_metadata if self.custom_metadata is None else self.custom_metadata(segment)
        values = {SEGMENT_ID_TAG: segment.segment_id.id.raw}
        if metadata is not None:
            values[METADATA_TAG] = _varint(len(metadata) + 1) + metadata
        numbers = {
            START_TAG: segment.start_offset,
            END_TAG: segment.end_offset,
            SIZE_TAG: segment.segment_size_in_bytes,
        }
        values |= {tag: number.to_bytes(8, "big") for tag, number in numbers.items() if tag in self.tags}
        fields = b"".join(_varint(tag) + _varint(len(value)) + value for tag, value in sorted(values.items()))
        return _varint(len(values)) + fields


@contextmanager
def located(rig: Rig, **how: Any) -> Iterator[LocationBroker]:
    """A double before the broker of a rig."""
    double = LocationBroker(rig, **how)
    try:
        yield double
    finally:
        double.close()


def _earliest_local(broker: socket.socket, partition: TopicIdPartition) -> int:
    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = topic.ListOffsetsPartition(
        version=8, partition_index=partition.partition, current_leader_epoch=-1, timestamp=_EARLIEST_LOCAL
    )
    request = ListOffsetsRequest(
        version=8,
        replica_id=-1,
        isolation_level=0,
        topics=[topic(version=8, name=partition.topic, partitions=[wanted])],
    )
    request.with_header(correlation_id=2, client_id="location-broker")
    _send(broker, request.encode(header=True))
    response = ListOffsetsResponse.decode(_receive(broker), version=8, header=True)
    return int(response.topics[0].partitions[0].offset)


def _announcing(response: bytes, version: int) -> bytes:
    """A response to ApiVersions with one more version of Fetch. Its header never has tagged fields."""
    parsed = ApiVersionsResponse.decode(response[4:], version=version)
    if parsed.error_code:
        return response
    for api in parsed.api_keys:
        if api.api_key == ApiKey.Fetch.value:
            api.max_version = NEW_VERSION
    return response[:4] + bytes(parsed.encode())


def _address(host: str, port: int) -> bytes:
    """An address in the form of a message: the end of the host's name, and the port."""
    return host.encode() + struct.pack(">i", port)


def _strings(value: bytes) -> tuple[str, ...]:
    """A compact array of fewer than 127 short compact strings."""
    count, at = value[0] - 1, 1
    found = []
    for _ in range(count):
        size = value[at] - 1
        found.append(value[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return tuple(found)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _send(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(struct.pack(">i", len(payload)) + payload)


def _receive(connection: socket.socket) -> bytes:
    """One message. Raises EOFError if the connection has ended."""
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 <= size <= _MOST_BYTES:
        raise EOFError(f"a message of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = connection.recv(min(size - len(found), 1 << 20))
        if not part:
            raise EOFError
        found += part
    return bytes(found)

"""The Fetch that asks for a location, and what its response says: KIP-1254's fields as classes of kafka-python.

Rules of the file:

- kafka-python is not imported. `location_channel` gives its classes.
- An answer is believed for the topic id, partition and offset of the request, and for nothing else.
- Numbers, lists and bytes of a response are bounded before they are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import Unlocatable
from remote_fetch.locate.location_schema import LocationSchema
from remote_fetch.locate.locations import Answer, Location, LocationsUnsupported
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid

__all__ = ["LocationMessages"]

_FETCH = 1
_NO_ERROR, _OFFSET_OUT_OF_RANGE, _UNSUPPORTED_VERSION = 0, 1, 35
_MAX_METADATA_BYTES = 64 << 10
_MAX_ABORTED = 1_000_000


class LocationMessages:
    """Makes requests and reads responses. `request` and `response` are kafka-python's classes with the fields."""

    def __init__(self, schema: LocationSchema, request: Any, response: Any) -> None:
        self._schema = schema
        self._request, self._response = request, response

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
        return next((int(code) for code in codes if code), _NO_ERROR)

    def answer(self, response: Any, partition: TopicIdPartition, offset: int) -> Answer:
        """The answer that a response holds. Raises LocationsUnsupported, and Unlocatable for an error or nonsense."""
        code = self.error_code(response)
        if code == _UNSUPPORTED_VERSION:
            raise LocationsUnsupported(f"a broker refuses Fetch {self._schema.fetch_version} (UNSUPPORTED_VERSION)")
        if code not in (_NO_ERROR, _OFFSET_OUT_OF_RANGE):
            raise _unusable(partition, offset, f"error {code} of the leader")
        topics = response.responses
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            raise _unusable(partition, offset, "a response for another number of partitions")
        (topic,), (found,) = topics, topics[0].partitions
        topic_id = bytes(16) if topic.topic_id is None else topic.topic_id.bytes
        if topic_id != partition.topic_id.raw or found.partition_index != partition.partition:
            raise _unusable(partition, offset, f"a response for {Uuid(topic_id)}, partition {found.partition_index}")
        aborted = tuple((each.producer_id, each.first_offset) for each in found.aborted_transactions or ())
        if len(aborted) > _MAX_ABORTED or any(producer < 0 or first < 0 for producer, first in aborted):
            raise _unusable(partition, offset, "a list of aborted transactions that no broker has")
        location = None if code else self._location(found, partition, offset)
        return Answer(location, aborted, found.last_stable_offset, found.log_start_offset, bool(found.records))

    def _location(self, found: Any, partition: TopicIdPartition, offset: int) -> Location | None:
        values = {
            field.role: getattr(found, _attribute(self._response, field.name))
            for field in self._schema.response
            if field.struct == "PartitionData"
        }
        segment_id = values["segment_id"]
        if segment_id is None or segment_id.int == 0:
            return None
        custom_metadata = values["custom_metadata"]
        if custom_metadata is not None and len(custom_metadata) > _MAX_METADATA_BYTES:
            raise _unusable(partition, offset, f"custom metadata of {len(custom_metadata)} bytes")
        numbers = {
            role: value if isinstance(value, int) and value >= 0 else None
            for role, value in values.items()
            if role not in ("segment_id", "custom_metadata")
        }
        return Location(
            Uuid(segment_id.bytes),
            None if custom_metadata is None else bytes(custom_metadata),
            numbers.get("start_offset"),
            numbers.get("end_offset"),
            numbers.get("size_bytes"),
        )


def _attribute(kind: Any, name: str) -> str:
    """The name of a field as an attribute of kafka-python's classes."""
    return str(kind._struct.underscore_name(name))


def _unusable(partition: TopicIdPartition, offset: int, what: str) -> Unlocatable:
    return Unlocatable(
        f"the answer to where an offset lies in the tier cannot be used: {what}",
        first=offset,
        offset=offset,
        **partition.place,
    )

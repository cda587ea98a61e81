"""Requests and responses with KIP-1254's fields, in kafka-python's classes, and responses that cannot be believed."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse

from remote_fetch.errors import Unlocatable
from remote_fetch.locate.location_channel import _define
from remote_fetch.locate.location_messages import LocationMessages
from remote_fetch.locate.location_schema import load_schema
from remote_fetch.locate.locations import Answer, Location, LocationsUnsupported
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid
from tests.cases import each_of

PARTITION = TopicIdPartition(Uuid(bytes(range(16))), "t", 3)
SEGMENT = Uuid(b"the segment's id")
SCHEMA = load_schema(None)
REQUEST, RESPONSE = _define(SCHEMA)
MESSAGES = LocationMessages(SCHEMA, REQUEST, RESPONSE)
TOLD = {
    "remote_log_segment_id": uuid.UUID(bytes=SEGMENT.raw),
    "remote_log_segment_custom_metadata": b"where",
    "remote_log_segment_start_offset": 5,
    "remote_log_segment_end_offset": 9,
    "remote_log_segment_size_in_bytes": 1 << 33,
}


def response(*, topic_id: Uuid = PARTITION.topic_id, number: int = 3, copies: int = 1, **fields: Any) -> Any:
    """A response as it comes from the wire."""
    kind = RESPONSE.FetchableTopicResponse
    values = {
        "error_code": 0,
        "high_watermark": 20,
        "last_stable_offset": 18,
        "log_start_offset": 1,
        "aborted_transactions": None,
        "records": None,
        **fields,
    }
    partition = kind.PartitionData(version=19, partition_index=number, **values)
    topic = kind(version=19, topic_id=uuid.UUID(bytes=topic_id.raw), partitions=[partition] * copies)
    made = RESPONSE(version=19, throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])
    return RESPONSE.decode(made.encode(), version=19)


def answered(**fields: Any) -> Answer:
    return MESSAGES.answer(response(**fields), PARTITION, 7)


def aborted(*pairs: tuple[int, int]) -> list[Any]:
    kind = RESPONSE.FetchableTopicResponse.PartitionData.AbortedTransaction
    return [kind(version=19, producer_id=producer, first_offset=first) for producer, first in pairs]


@pytest.mark.parametrize("isolation", IsolationLevel)
def test_the_request(isolation: IsolationLevel) -> None:
    """Read by kafka-python's own class, which takes the new fields for unknown tags."""
    request = MESSAGES.request(PARTITION, 7, isolation)
    request.with_header(correlation_id=4, client_id="c")
    sent = FetchRequest.decode(request.encode(header=True), version=18, header=True)
    (topic,) = sent.topics
    (partition,) = topic.partitions
    assert sent.header.request_api_version == 19
    assert (topic.topic_id.bytes, partition.partition, partition.fetch_offset) == (PARTITION.topic_id.raw, 3, 7)
    assert (partition.partition_max_bytes, sent.max_bytes, sent.max_wait_ms) == (1, 1, 0)
    assert sent.isolation_level == (isolation is IsolationLevel.READ_COMMITTED)
    assert (sent.unknown_tags, partition.unknown_tags) == ({"_2": b"\x02\x0eApacheKafkaV1"}, {"_2": b"\x01"})


def test_the_applications_own_clients_keep_their_class_of_responses() -> None:
    request = MESSAGES.request(PARTITION, 7, IsolationLevel.READ_COMMITTED)
    request.with_header(correlation_id=4, client_id="c")
    assert issubclass(request.header.get_response_class(), RESPONSE)
    usual = FetchRequest(version=18, max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[])
    usual.with_header(correlation_id=5, client_id="c")
    assert usual.header.get_response_class().mro()[1] is FetchResponse


def test_a_location() -> None:
    found = answered(**TOLD, aborted_transactions=aborted((4, 2), (6, 8)))
    assert found == Answer(Location(SEGMENT, b"where", 5, 9, 1 << 33), ((4, 2), (6, 8)), 18, 1)


def test_the_fields_of_the_kip_alone() -> None:
    found = answered(remote_log_segment_id=TOLD["remote_log_segment_id"])
    assert found.location == Location(SEGMENT, None, None, None, None)


def test_no_location() -> None:
    assert answered() == Answer(None, (), 18, 1)
    assert answered(records=b"bytes of a batch") == Answer(None, (), 18, 1, has_records=True)
    assert answered(remote_log_segment_id=uuid.UUID(int=0)).location is None
    assert answered(error_code=1, **TOLD).location is None  # OFFSET_OUT_OF_RANGE


@each_of(
    ("fields", "message"),
    [
        ({"topic_id": Uuid(bytes(16))}, "a response for AAAAAAAAAAAAAAAAAAAAAA, partition 3"),
        ({"number": 4}, "partition 4"),
        ({"copies": 2}, "another number of partitions"),
        ({"error_code": 56}, "error 56 of the leader"),
        ({"aborted_transactions": [(-1, 4)]}, "a list of aborted transactions that no broker has"),
        ({"aborted_transactions": [(1, -4)]}, "a list of aborted transactions that no broker has"),
        ({"remote_log_segment_custom_metadata": bytes((64 << 10) + 1)}, "custom metadata of 65537 bytes"),
    ],
)
def test_answers_that_cannot_be_used(fields: dict[str, Any], message: str) -> None:
    if "aborted_transactions" in fields:
        fields = {"aborted_transactions": aborted(*fields["aborted_transactions"])}
    with pytest.raises(Unlocatable) as raised:
        answered(**{**TOLD, **fields})
    assert message in str(raised.value)
    assert "t-3" in str(raised.value)


def test_versions() -> None:
    with pytest.raises(LocationsUnsupported, match="UNSUPPORTED_VERSION"):
        answered(error_code=35)
    request = MESSAGES.request(PARTITION, 7, IsolationLevel.READ_COMMITTED)
    MESSAGES.check_version({1: (4, 19)}, request, 1)
    for versions in ({1: (4, 18)}, {1: (20, 21)}, {}):
        with pytest.raises(LocationsUnsupported, match="locations need Fetch 19"):
            MESSAGES.check_version(versions, request, 1)
    usual = FetchRequest(version=18, max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[])
    assert MESSAGES.error_code(FetchResponse(version=18, error_code=6, responses=[])) == 6
    assert usual.API_KEY == 1

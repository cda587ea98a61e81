"""The answers of a service: what is read of them, and that nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.service_answers import (
    Refusal,
    parse_locations,
    parse_refusal,
    parse_segments,
    parse_storage,
)
from remote_fetch.model import (
    MAX_OFFSET,
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from tests.cases import each_of
from tests.locate.scripted_service import page, segment_json

PARTITION = TopicIdPartition(Uuid(bytes(range(16))), "orders", 3)
OTHER = TopicIdPartition(Uuid(bytes(range(1, 17))), "orders", 3)
SEGMENT = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(PARTITION, Uuid(bytes(range(2, 18)))),
    10,
    19,
    1 << 33,
    max_timestamp_ms=5,
    event_timestamp_ms=6,
    broker_id=7,
    segment_leader_epochs=(LeaderEpoch(1, 10), LeaderEpoch(2, 12)),
    custom_metadata=b"\0custom",
    txn_index_empty=True,
)
NAME = f"orders-3/00000000000000000010-{SEGMENT.segment_id.id}.log"
URL = f"https://store/bucket/{NAME}?signature=s3cret"


def test_a_page() -> None:
    plain = replace(SEGMENT, segment_leader_epochs=(), custom_metadata=None, txn_index_empty=False)
    found = parse_segments(page(PARTITION, [SEGMENT, plain], 20, orphan_updates=1, malformed_records=2), PARTITION)
    assert found.segments == (SEGMENT, plain)
    assert (found.next_offset, found.orphan_updates, found.malformed_records) == (20, 1, 2)


def test_the_order_in_which_segments_were_finished() -> None:
    """A service that does not tell it leaves the time of the event."""
    entries = [segment_json(SEGMENT, finish_order=5, upload_epoch=3), segment_json(SEGMENT)]
    found = parse_segments(page(PARTITION, entries), PARTITION)
    assert (found.finish_order, found.upload_epochs) == ((5, 6), (3, -1))


def test_fields_that_are_not_known_are_ignored() -> None:
    entry = segment_json(SEGMENT, colour="blue")
    assert parse_segments(page(PARTITION, [entry], stable_offset=4, shape=[1]), PARTITION).segments == (SEGMENT,)


def test_epochs_are_those_of_a_metadata_record() -> None:
    """They ascend, and the last entry of an epoch counts."""
    entry = segment_json(SEGMENT, leader_epochs=[[2, 12], [1, 9], [1, 10]])
    assert parse_segments(page(PARTITION, [entry]), PARTITION).segments == (SEGMENT,)


@each_of(
    ("name", "value"),
    [
        ("id", "short"),
        ("id", None),
        ("id", 5),
        ("start_offset", -1),
        ("start_offset", 20),
        ("start_offset", "10"),
        ("start_offset", 10.0),
        ("start_offset", True),
        ("end_offset", 9),
        ("end_offset", MAX_OFFSET + 1),
        ("end_offset", 2**70),
        ("size_bytes", None),
        ("size_bytes", 2**63),
        ("broker_id", "1"),
        ("max_timestamp_ms", []),
        ("event_timestamp_ms", {}),
        ("leader_epochs", None),
        ("leader_epochs", [[1]]),
        ("leader_epochs", [[1, 2, 3]]),
        ("leader_epochs", [1]),
        ("leader_epochs", [[1, "2"]]),
        ("leader_epochs", [[-1, 2]]),
        ("custom_metadata", "not base64!"),
        ("custom_metadata", "AAA"),
        ("custom_metadata", 5),
        ("txn_index_empty", "true"),
        ("txn_index_empty", None),
        ("finish_order", None),
        ("finish_order", "1"),
        ("upload_epoch", 1.0),
    ],
)
def test_a_field_that_is_wrong(name: str, value: object) -> None:
    with pytest.raises(CorruptSegment):
        parse_segments(page(PARTITION, [segment_json(SEGMENT, **{name: value})]), PARTITION)


@each_of(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b"NaN",
        b"[" * 100_000,
        b'{"partition": ' + b"9" * 5000 + b"}",
        page(OTHER, []),
        page(replace(PARTITION, topic="other"), []),
        page(replace(PARTITION, partition=4), []),
        page(PARTITION, [], topic_id="\n" * 1000),
        page(PARTITION, [], topic=None),
        page(PARTITION, [5]),
        page(PARTITION, [], 5),
        page(PARTITION, [], 4),
        page(PARTITION, [], MAX_OFFSET + 1),
        page(PARTITION, [], orphan_updates=-1),
        page(PARTITION, [], malformed_records="1"),
        page(PARTITION, [], partition=True),
    ],
)
def test_a_page_that_is_wrong(body: bytes) -> None:
    with pytest.raises(CorruptSegment) as raised:
        parse_segments(body, PARTITION, 5)
    assert len(str(raised.value)) < 1000
    assert str(raised.value).isprintable()


def test_a_storage() -> None:
    told = {"layout": "aiven", "layout_options": {"key.prefix": "tiered/"}}
    assert parse_storage(json.dumps(told).encode()) == ("aiven", {"key.prefix": "tiered/"})
    assert parse_storage(b'{"layout": "plain"}') == ("plain", {})


@each_of(
    "told",
    [
        {},
        {"layout": ""},
        {"layout": 5},
        {"layout": "a\nb"},
        {"layout": "plain", "layout_options": []},
        {"layout": "plain", "layout_options": {"a": 5}},
        {"layout": "plain", "layout_options": {str(number): "" for number in range(1000)}},
    ],
)
def test_a_storage_that_is_wrong(told: object) -> None:
    with pytest.raises(CorruptSegment):
        parse_storage(json.dumps(told).encode())


def located(objects: object, segment: RemoteLogSegmentMetadata = SEGMENT) -> bytes:
    return page(PARTITION, [segment_json(segment, objects=objects)])


def test_locations() -> None:
    assert parse_locations(located({NAME: URL}), SEGMENT) == {NAME: URL}
    assert parse_locations(located({}), SEGMENT) == {}
    assert parse_locations(page(PARTITION, [SEGMENT]), SEGMENT) == {}


def test_a_segment_that_is_not_in_the_answer() -> None:
    other = replace(SEGMENT, segment_id=RemoteLogSegmentId(PARTITION, Uuid(bytes(range(3, 19)))))
    assert parse_locations(located({NAME: URL}, other), SEGMENT) is None


@each_of("objects", [[], {NAME: 5}, {NAME: None}, {NAME: URL, "other": []}])
def test_locations_that_are_wrong(objects: object) -> None:
    with pytest.raises(CorruptSegment) as raised:
        parse_locations(located(objects), SEGMENT)
    assert "s3cret" not in str(raised.value)


def test_more_objects_than_a_segment_has() -> None:
    many = {f"orders-3/{SEGMENT.segment_id.id}.{number}": URL for number in range(65)}
    with pytest.raises(CorruptSegment):
        parse_locations(located(many), SEGMENT)


def test_a_refusal() -> None:
    told = {"error": {"code": "TOPIC_AUTHORIZATION_FAILED", "message": "READ\non orders"}}
    assert parse_refusal(json.dumps(told).encode()) == Refusal("TOPIC_AUTHORIZATION_FAILED", "READ?on orders")


@each_of("body", [b"", b"<html>", b"[]", b'{"error": 5}', b'{"error": {}}', b'{"error": {"code": 5, "message": []}}'])
def test_a_refusal_that_another_server_wrote(body: bytes) -> None:
    assert parse_refusal(body) == Refusal("", "")


def test_a_long_refusal_is_shown_in_part() -> None:
    told: dict[str, Any] = {"error": {"code": "X", "message": "x" * 10_000}}
    assert len(parse_refusal(json.dumps(told).encode()).message) <= 300

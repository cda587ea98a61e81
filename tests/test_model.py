"""The values that the stages pass on: Kafka's text form of ids, what orders, hashes and pickles, what is frozen."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch import model
from remote_fetch.model import (
    UNKNOWN_SIZE,
    AbortedTransaction,
    IndexType,
    IsolationLevel,
    LeaderEpoch,
    LogBounds,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TimestampType,
    TopicIdPartition,
    Uuid,
)
from tests.searches import examples

ID = Uuid(bytes(range(16)))
PARTITION = TopicIdPartition(ID, "a-topic", 3)
SEGMENT = RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, Uuid(b"\xff" * 16)), 5, 9, 1000)
VALUES = [
    ID,
    PARTITION,
    SEGMENT.segment_id,
    LeaderEpoch(1, 2),
    SEGMENT,
    AbortedTransaction(1, 2, 3, 4),
    LogBounds(),
]


@examples(50)
@given(st.binary(min_size=16, max_size=16))
def test_uuid_round_trip(raw: bytes) -> None:
    uuid = Uuid(raw)
    text = str(uuid)
    assert len(text) == 22
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert Uuid.parse(text) == uuid
    assert repr(uuid) == f"Uuid({text})"


def test_uuids_of_kafka() -> None:
    assert str(Uuid(bytes(16))) == "AAAAAAAAAAAAAAAAAAAAAA"
    # Uuid.METADATA_TOPIC_ID of Kafka is new Uuid(0, 1).
    assert Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ") == Uuid((1).to_bytes(16, "big"))
    assert str(Uuid(b"\xfb" + b"\xff" * 15)) == "-" + 20 * "_" + "w"


@examples(100)
@given(st.one_of(st.text(max_size=30), st.text(alphabet="ABw-_=+/ \n", min_size=20, max_size=24)))
def test_uuid_parse_takes_one_spelling_only(text: str) -> None:
    try:
        uuid = Uuid.parse(text)
    except ValueError:
        return
    assert str(uuid) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAAAAAAAAAAAAAAAAAAA",  # 21 characters
        "AAAAAAAAAAAAAAAAAAAAAAA",  # 23
        "AAAAAAAAAAAAAAAAAAAAAA==",  # padded
        "AAAAAAAAAAAAAAAAAAAAAB",  # bits beyond the 16th byte
        "++++++++++++++++++++++",  # the other alphabet
        "AAAAAAAAAAAAAAAAAAAAA\n",
        "AAAAAAAAAAAAAAAAAAAAA\u00e4",
        "AAAAAAAAAAA AAAAAAAAAA",
    ],
)
def test_uuid_parse_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a Kafka Uuid"):
        Uuid.parse(text)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_uuid_has_sixteen_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"16 bytes, not {size}"):
        Uuid(bytes(size))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_frozen_hashable_and_pickle(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert hash(pickle.loads(pickle.dumps(value))) == hash(value)
    assert not hasattr(value, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, None)


def test_partitions_sort_by_topic_id_first() -> None:
    later = TopicIdPartition(Uuid(b"\xff" * 16), "a", 0)
    assert sorted([later, PARTITION]) == [PARTITION, later]
    assert str(PARTITION) == "AAECAwQFBgcICQoLDA0ODw:a-topic-3"


def test_a_segment_of_a_bare_listing() -> None:
    assert SEGMENT.topic_id_partition is PARTITION
    assert SEGMENT.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    assert (SEGMENT.max_timestamp_ms, SEGMENT.event_timestamp_ms, SEGMENT.broker_id) == (-1, -1, -1)
    assert SEGMENT.segment_leader_epochs == ()
    assert SEGMENT.custom_metadata is None
    assert SEGMENT.txn_index_empty is False


@pytest.mark.parametrize(
    ("size_bytes", "known"),
    [
        (-1073741824, False), (-1, False), (0, False), (1, True), (UNKNOWN_SIZE - 1, True), (UNKNOWN_SIZE, False),
        (UNKNOWN_SIZE + 1, True),
    ],
)  # fmt: skip
def test_the_largest_int_and_what_is_below_1_stand_for_an_unknown_size(size_bytes: int, known: bool) -> None:
    assert UNKNOWN_SIZE == 2147483647
    segment = dataclasses.replace(SEGMENT, segment_size_in_bytes=size_bytes)
    assert segment.size_known is known
    assert segment.known_size_bytes == (size_bytes if known else None)
    assert segment.likely_size_bytes == (UNKNOWN_SIZE if size_bytes < 0 else size_bytes)


def test_custom_metadata_is_not_printed() -> None:
    assert "c1gn" not in repr(dataclasses.replace(SEGMENT, custom_metadata=b"https://x/?c1gn"))


def test_numbers_and_names_are_kafkas() -> None:
    assert [state.value for state in RemoteLogSegmentState] == [0, 1, 2, 3]
    assert [kind.value for kind in TimestampType] == [-1, 0, 1]
    assert IsolationLevel("read_committed") is IsolationLevel.READ_COMMITTED
    assert str(IndexType.PRODUCER_SNAPSHOT) == "producer-snapshot"
    assert len(IndexType) == 5


def test_exports() -> None:
    for name in model.__all__:
        assert hasattr(model, name)

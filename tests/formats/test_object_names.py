"""Names that belong to a segment, and names that only look so."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.formats.object_names import belongs_to
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tests.cases import each_of

TOPIC_ID = Uuid.parse("lZ6vvmajTWKDBUTV6SQAtQ")
SEGMENT_ID = Uuid.parse("-dh9f8BMS4anaUnD8KWf_g")
OTHER = Uuid.parse("adh9f8BMS4anaUnD8KWfWg")
TOPIC_UUID, SEGMENT_UUID = UUID(bytes=TOPIC_ID.raw), UUID(bytes=SEGMENT_ID.raw)
START = f"{42:020d}"


def segment(
    topic: str = "orders", partition: int = 1, topic_id: Uuid = TOPIC_ID, segment_id: Uuid = SEGMENT_ID
) -> RemoteLogSegmentMetadata:
    place = TopicIdPartition(topic_id, topic, partition)
    return RemoteLogSegmentMetadata(RemoteLogSegmentId(place, segment_id), 42, 99, 1000)


@each_of(
    "name",
    [
        f"kafka-tiered-storage/orders-1-{TOPIC_ID}/{START}-{SEGMENT_ID}.log",
        f"orders-1-{TOPIC_ID}/{START}-{SEGMENT_ID}.leader_epoch_checkpoint",
        f"orders-{TOPIC_ID}/1/{START}-{SEGMENT_ID}.rsm-manifest",
        f"tier/eu-orders-{TOPIC_ID}/1/{START}-{SEGMENT_ID}.indexes",
        f"/orders-{TOPIC_ID}/1/{START}-{SEGMENT_ID}.log",
        f"{TOPIC_UUID}_1/{SEGMENT_UUID}/txn_index",
        f"orders-1/{START}.log.{SEGMENT_ID}",
        f"a/b c/orders-1/{START}-{SEGMENT_ID}.log",
        f"topics/orders/1/{SEGMENT_ID}.log",
        f"topic=orders/partition=1/{START}-{SEGMENT_ID}.log",
        f"orders-1-{START}-{SEGMENT_ID}.log",
        f"orders_1_{SEGMENT_ID}.log",
        f"orders.1.{SEGMENT_UUID}.log",
        f"orders/1-{START}/{SEGMENT_ID}.log",
        f"{SEGMENT_ID}/orders-1",
        f"grün/orders-1/{SEGMENT_ID}.log",
    ],
)
def test_names_that_layouts_write(name: str) -> None:
    assert belongs_to(name, segment())


@each_of(
    "name",
    [
        "",
        "orders-1",
        f"orders-1/{START}.log",
        f"{SEGMENT_ID}.log",
        # another segment, partition or topic
        f"orders-1-{TOPIC_ID}/{START}-{OTHER}.log",
        f"orders-{OTHER}/1/{START}-{SEGMENT_ID}.log",
        f"orders-2/{START}-{SEGMENT_ID}.log",
        f"orders-10/{START}-{SEGMENT_ID}.log",
        f"orders-01/{START}-{SEGMENT_ID}.log",
        f"orders/10/{SEGMENT_ID}.log",
        f"orders/1/1/../{SEGMENT_ID}.log",
        f"Orders-1/{SEGMENT_ID}.log",
        f"all-orders-1/{SEGMENT_ID}.log",
        f"all.orders/1/{SEGMENT_ID}.log",
        f"ordersX1/{SEGMENT_ID}.log",
        f"orders/x/1/{SEGMENT_ID}.log",
        f"orders-1-2/{START}-{SEGMENT_ID}.log",
        f"orders-1.archive/{START}-{SEGMENT_ID}.log",
        f"orders-1-{OTHER}/{START}-{SEGMENT_ID}.log",
        f"orders/1.d/{SEGMENT_ID}.log",
        # an id that is not whole, or of another case
        f"orders-1/{SEGMENT_ID}0.log",
        f"orders-1/x{str(SEGMENT_ID)[1:]}.log",
        f"orders-1/{str(SEGMENT_ID)[:-1]}.log",
        f"orders-1/{str(SEGMENT_ID).swapcase()}.log",
        f"orders-1/{str(SEGMENT_UUID).upper()}.log",
        f"orders-1/{SEGMENT_UUID.hex}.log",
        # names that a URL turns into another one
        f"orders-1/../orders-2/{SEGMENT_ID}.log",
        f"../orders-1/{SEGMENT_ID}.log",
        f"orders-1/{SEGMENT_ID}/..",
        f"./orders-1/{SEGMENT_ID}.log",
        f"orders-1/%2e%2e/{SEGMENT_ID}.log",
        f"orders-1%2F{SEGMENT_ID}.log",
        f"orders-2/x?orders-1/{SEGMENT_ID}.log",
        f"orders-2/x#orders-1/{SEGMENT_ID}.log",
        f"orders-1\\{SEGMENT_ID}.log",
        f"orders-1/{SEGMENT_ID}.log\n",
        f"orders-1/{SEGMENT_ID}\0.log",
        f"orders-1/{SEGMENT_ID}/",
        f"orders-1/{SEGMENT_ID}.log{'x' * 1024}",
    ],
)
def test_names_that_do_not_belong(name: str) -> None:
    assert not belongs_to(name, segment())


def test_a_topic_whose_name_holds_the_name_of_another() -> None:
    """Each name belongs to the segment of its own topic alone, whatever characters the topics have."""
    topics = ["a", "a-0", "a-0-0", "a.0", "a_0", "0", "0-0", "a-0-1", "-a", "a-", "x-a", str(SEGMENT_ID), str(OTHER)]
    for written in topics:
        for name in (f"{written}-0/{SEGMENT_ID}.log", f"{written}-0-{START}-{SEGMENT_ID}.log"):
            found = [topic for topic in topics if belongs_to(name, segment(topic, 0))]
            assert found == [written], name


def test_a_topic_name_is_no_pattern() -> None:
    assert belongs_to(f"a.b-0/{SEGMENT_ID}.log", segment("a.b", 0))
    assert not belongs_to(f"aXb-0/{SEGMENT_ID}.log", segment("a.b", 0))


def test_ids_that_are_none() -> None:
    none = Uuid(bytes(16))
    assert not belongs_to(f"orders-1/{none}.log", segment(segment_id=none))
    assert not belongs_to(f"{none}/{SEGMENT_ID}.log", segment(topic_id=none))
    assert belongs_to(f"orders-1/{SEGMENT_ID}.log", segment(topic_id=none))


def test_one_id_for_both_shows_nothing() -> None:
    """The record of a segment may claim its topic's id as its own: then every object of the topic would be its."""
    assert not belongs_to(f"orders-{TOPIC_ID}/1/{START}-{OTHER}.log", segment(segment_id=TOPIC_ID))


@given(st.text(), st.text(max_size=30))
def test_any_text_around(before: str, after: str) -> None:
    """No text is an error. A name without the ids belongs to no segment."""
    assert not belongs_to(before, segment())
    name = f"{before}/orders-1-{TOPIC_ID}/{START}-{SEGMENT_ID}.log{after}"
    if belongs_to(name, segment()):
        assert ".." not in name.split("/")
        assert name.isprintable()
        assert not belongs_to(name, segment(segment_id=OTHER))

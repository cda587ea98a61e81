"""`assign` and its relatives: every kind of offset, in the tier and past it, and the assignment afterwards."""

from __future__ import annotations

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.contract.kinds import Consumers
from tests.contract.material import TAIL, TIMEOUT_S, Material, offsets_of, poll_through, read


def first_offset(consumers: Consumers, partition: TopicPartition, **more: object) -> int | None:
    """Where a consumer begins that was assigned this."""
    consumer = consumers(**more)
    consumer.assign([partition])
    (message,) = read(consumer, 1)
    return message.offset()


@pytest.mark.switched_off
@pytest.mark.parametrize("offset", [0, 1, 57, 99, 100, 110])
def test_an_offset(consumers: Consumers, material: Material, offset: int) -> None:
    assert first_offset(consumers, material.at(offset)) == offset


@pytest.mark.parametrize("offset", [OFFSET_INVALID, OFFSET_STORED])
@pytest.mark.parametrize("committed", [None, 57, 110])
def test_the_committed_offset(consumers: Consumers, material: Material, offset: int, committed: int | None) -> None:
    if committed is not None:
        consumers.plain().commit(offsets=[material.at(committed)], asynchronous=False)
    assert first_offset(consumers, material.at(offset)) == (committed or 0)


def test_the_beginning(consumers: Consumers, material: Material) -> None:
    assert first_offset(consumers, material.at(OFFSET_BEGINNING)) == 0
    trimmed = TopicPartition(material.trimmed, 0, OFFSET_BEGINNING)
    assert first_offset(consumers, trimmed) == material.log_start


@pytest.mark.parametrize("back", [1, 20, 21, 70])
def test_so_many_before_the_end(consumers: Consumers, material: Material, back: int) -> None:
    assert first_offset(consumers, material.at(TAIL - back)) == material.end - back


def test_the_end(consumers: Consumers, material: Material) -> None:
    consumer = consumers(enable_partition_eof=True)
    consumer.assign([material.at(OFFSET_END)])
    (end,) = poll_through(consumer, lambda message: True)
    assert end.offset() == material.end


def test_what_is_assigned(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    assert consumer.assignment() == []
    consumer.assign([material.at(57), material.at(OFFSET_BEGINNING, 1)])
    found = sorted(consumer.assignment())
    assert found == material.both()
    assert [(one.offset, one.error, one.metadata) for one in found] == [
        (57, None, None),
        (OFFSET_BEGINNING, None, None),
    ]
    read(consumer, 150)
    assert sorted(one.offset for one in consumer.assignment()) == [OFFSET_BEGINNING, 57]
    consumer.seek(material.at(110))
    assert sorted(one.offset for one in consumer.assignment()) == [OFFSET_BEGINNING, 57]
    consumer.unassign()
    assert consumer.assignment() == []
    consumer.assign([material.at()])
    assert [one.offset for one in consumer.assignment()] == [OFFSET_STORED], "for OFFSET_INVALID"


def test_the_list_stays_as_it_was(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    partitions = [material.at(57), material.at()]
    consumer.assign(partitions[:1])
    consumer.incremental_assign([material.at(3, 1)])
    assert [one.offset for one in partitions] == [57, OFFSET_INVALID]


def test_another_assignment_replaces_the_first(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(0)])
    read(consumer, 5)
    consumer.assign([material.at(90, 1)])
    assert consumer.assignment() == [material.at(partition=1)]
    assert offsets_of(read(consumer, 30)) == [(1, offset) for offset in range(90, 120)]
    consumer.assign([material.at(50)])
    assert offsets_of(read(consumer, 70)) == [(0, offset) for offset in range(50, 120)]


@pytest.mark.parametrize("offset", [OFFSET_INVALID, OFFSET_STORED])
@pytest.mark.parametrize("start", [30, 92, 105])
def test_once_more_the_same_goes_on_where_it_is(
    consumers: Consumers, material: Material, start: int, offset: int
) -> None:
    """Stored offsets are committed before the committed offsets are read."""
    consumer = consumers(auto_offset_reset="latest", auto_commit_interval_ms=3_600_000)
    consumer.assign([material.at(start)])
    read(consumer, 5)
    consumer.assign([material.at(offset), material.at(100, 1)])
    found = offsets_of(read(consumer, 120 - start - 5 + 20))
    assert sorted(found) == [(0, number) for number in range(start + 5, 120)] + [
        (1, number) for number in range(100, 120)
    ]


@pytest.mark.parametrize("how", ["unassign", "assign", "incremental", "commit"])
def test_the_same_after_nothing_was_assigned_goes_on_where_it_was(
    consumers: Consumers, material: Material, how: str
) -> None:
    """The offset that is committed with the unassignment, or before it, counts for the assignment right after it.

    If the coordinator moves twice, librdkafka gives a commit up. `told` says so.
    """
    told: list[object] = []
    consumer = consumers(
        enable_auto_commit=how != "commit", auto_commit_interval_ms=3_600_000, on_commit=lambda *each: told.append(each)
    )
    begin = consumer.incremental_assign if how == "incremental" else consumer.assign
    begin([material.at(30)])
    for round_ in range(4):
        found = [offset for _, offset in offsets_of(read(consumer, 5))]
        assert found == list(range(30 + 5 * round_, 35 + 5 * round_)), told
        if how == "assign":
            consumer.assign([])
        elif how == "incremental":
            consumer.incremental_unassign([material.at()])
        else:
            if how == "commit":
                consumer.commit()
            consumer.unassign()
        begin([material.at()])


@pytest.mark.parametrize("start", [30, 105])
def test_once_more_the_same_without_commits_begins_again(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers(enable_auto_commit=False)
    consumer.assign([material.at(start)])
    read(consumer, 5)
    consumer.assign([material.at()])
    assert offsets_of(read(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("offset", [50, 110])
def test_nothing_comes_of_what_is_no_longer_assigned(consumers: Consumers, material: Material, offset: int) -> None:
    for take_away in ("unassign", "assign"):
        consumer = consumers()
        consumer.assign([material.at(offset)])
        read(consumer, 3)
        consumer.unassign() if take_away == "unassign" else consumer.assign([])
        assert consumer.assignment() == []
        assert consumer.poll(0.3) is None
        assert consumer.consume(10, 0.2) == []


@pytest.mark.parametrize("start", [50, 105])
@pytest.mark.parametrize("known_by", ["sibling", "position", "watermarks", "topic", "nothing"])
def test_a_pause_before_the_first_assignment(
    consumers: Consumers, material: Material, known_by: str, start: int
) -> None:
    """It counts if librdkafka knows the partition by then."""
    consumer = consumers()
    match known_by:
        case "sibling":
            consumer.assign([material.at(50, 1)])
            read(consumer, 1)
        case "position":
            consumer.position([material.at()])
        case "watermarks":
            consumer.get_watermark_offsets(material.at(), cached=True)
        case "topic":
            consumer.list_topics(material.topic, timeout=TIMEOUT_S)
    consumer.pause([material.at()])
    consumer.assign([material.at(start)])
    if known_by == "nothing":
        assert offsets_of(read(consumer, 1)) == [(0, start)]
    else:
        assert consumer.poll(0.5) is None
        consumer.resume([material.at()])
        assert offsets_of(read(consumer, 1)) == [(0, start)]


def test_incrementally(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.incremental_assign([material.at(50)])
    assert offsets_of(read(consumer, 5)) == [(0, offset) for offset in range(50, 55)]
    consumer.incremental_assign([material.at(95, 1)])
    assert sorted(consumer.assignment()) == material.both()
    found = offsets_of(read(consumer, 65 + 25))
    assert [offset for partition, offset in found if partition == 0] == list(range(55, 120))
    assert [offset for partition, offset in found if partition == 1] == list(range(95, 120))
    consumer.seek(material.at(80, 1))
    consumer.incremental_unassign([material.at()])
    assert consumer.assignment() == [material.at(partition=1)]
    assert offsets_of(read(consumer, 40)) == [(1, offset) for offset in range(80, 120)]
    consumer.incremental_unassign([material.at(partition=1)])
    assert consumer.assignment() == []


def test_incrementally_what_is_assigned_already(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.incremental_assign([material.at(50)])
    read(consumer, 5)
    with pytest.raises(KafkaException) as caught:
        consumer.incremental_assign([material.at(70), material.at(70, 1)])
    assert caught.value.args[0].code() == KafkaError._CONFLICT
    assert consumer.assignment() == [material.at()]
    assert offsets_of(read(consumer, 65)) == [(0, offset) for offset in range(55, 120)]


def test_incrementally_what_is_not_assigned(consumers: Consumers, material: Material) -> None:
    """The error leaves everything as it was, in the tier and past it."""
    consumer = consumers()
    consumer.incremental_assign([material.at(50)])
    read(consumer, 5)
    with pytest.raises(KafkaException) as caught:
        consumer.incremental_unassign([material.at(), material.at(partition=1)])
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert consumer.assignment() == [material.at()]
    assert offsets_of(read(consumer, 65)) == [(0, offset) for offset in range(55, 120)]


def test_twice_the_same(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    with pytest.raises(KafkaException) as caught:
        consumer.assign([material.at(50), material.at(60)])
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    assert consumer.assignment() == []


@pytest.mark.parametrize("offset", [0, OFFSET_BEGINNING, OFFSET_END])
@pytest.mark.parametrize("topic", ["nowhere", None])
def test_a_partition_that_does_not_exist(
    consumers: Consumers, material: Material, topic: str | None, offset: int
) -> None:
    """The remaining assigned partitions are read."""
    consumer = consumers()
    consumer.assign([TopicPartition(topic or material.topic, 7, offset), material.at(90)])
    assert offsets_of(read(consumer, 30)) == [(0, offset) for offset in range(90, 120)]
    assert len(consumer.assignment()) == 2


def test_a_topic_that_is_not_tiered(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([TopicPartition(material.local, 0, 0), material.at(0)])
    messages = read(consumer, 2 * material.end)
    for topic in (material.local, material.topic):
        assert [message.offset() for message in messages if message.topic() == topic] == list(range(material.end))

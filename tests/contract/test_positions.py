"""`position`, `seek`, `pause` and `resume`: in the tier, past it, and over the border between them."""

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
from tests.contract.material import Material, committed, is_end, offsets_of, poll_through, poll_until, read

_SEEKS = [(0, 0), (57, 57), (99, 99), (100, 100), (115, 115), (OFFSET_BEGINNING, 0), (-2030, 90), (-2005, 115)]


@pytest.mark.switched_off
@pytest.mark.parametrize("start", [0, 95, 100, 108])
def test_the_position_is_the_next_records(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers()
    assert [one.offset for one in consumer.position(material.both())] == [OFFSET_INVALID] * 2
    consumer.assign([material.at(start)])
    assert consumer.position([material.at()])[0].offset == OFFSET_INVALID
    for count in (1, 2, 5):
        (*_, last) = read(consumer, count)
        (position,) = consumer.position([material.at()])
        assert (position.offset, position.error) == ((last.offset() or 0) + 1, None)
        assert position.leader_epoch == last.leader_epoch()
        (*_, last) = consumer.consume(1, 30)
        assert consumer.position([material.at()])[0].offset == (last.offset() or 0) + 1
    given = [material.at(3, 1), material.at(4)]
    found = consumer.position(given)
    assert found == given
    assert (found[0].offset, given[0].offset, given[1].offset) == (OFFSET_INVALID, 3, 4)


def test_the_position_passes_markers(consumers: Consumers, material: Material) -> None:
    """If a partition ends with a marker, position and committed offset are past the marker."""
    wanted = TopicPartition(material.transactional, 0, 0)
    consumer = consumers(enable_partition_eof=True, isolation_level="read_committed")
    consumer.assign([wanted])
    *_, last, _end = poll_through(consumer, is_end)
    assert (last.offset() or 0) + 1 < material.transactional_end
    assert consumer.position([wanted])[0].offset == material.transactional_end
    consumer.commit(asynchronous=False)
    assert committed(consumers, wanted) == material.transactional_end


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_seeking_to_every_offset_among_markers(consumers: Consumers, material: Material, isolation: str) -> None:
    partition = TopicPartition(material.transactional, 0)
    plain = consumers.plain(isolation_level=isolation, enable_partition_eof=True)
    plain.assign([TopicPartition(material.transactional, 0, 0)])
    offsets = [message.offset() for message in poll_through(plain, is_end)]
    consumer = consumers(isolation_level=isolation, enable_partition_eof=True)
    consumer.assign([TopicPartition(material.transactional, 0, 0)])
    read(consumer, 1)
    for offset in range(0, material.transactional_end + 1, 9):
        consumer.seek(TopicPartition(partition.topic, 0, offset))
        (message,) = poll_through(consumer, lambda message: True)
        assert message.offset() == next(one for one in offsets if one is not None and one >= offset), offset


@pytest.mark.parametrize(("offset", "expected"), _SEEKS)
@pytest.mark.parametrize("start", [30, 110])
def test_seeking(consumers: Consumers, material: Material, start: int, offset: int, expected: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    read(consumer, 4)
    consumer.seek(material.at(offset))
    assert consumer.position([material.at()])[0].offset == OFFSET_INVALID
    found = offsets_of(read(consumer, material.end - expected))
    assert found == [(0, number) for number in range(expected, material.end)]


@pytest.mark.switched_off
@pytest.mark.parametrize("start", [30, 110])
def test_seeking_to_the_end(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers(enable_partition_eof=True)
    consumer.assign([material.at(start)])
    read(consumer, 4)
    consumer.seek(material.at(OFFSET_END))
    (end,) = poll_through(consumer, lambda message: True)
    assert is_end(end)
    assert end.offset() == material.end


@pytest.mark.parametrize("offset", [0, 57, 99, 100, 110])
def test_seeking_before_anything_was_read(consumers: Consumers, material: Material, offset: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(30), material.at(30, 1)])
    consumer.seek(material.at(offset))
    consumer.seek(material.at(offset, 1))
    for message in read(consumer, 2):
        assert message.offset() in (offset, offset + 1)


def test_seeking_leaves_the_others_alone(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign(material.both(90))
    read(consumer, 60)
    consumer.seek(material.at(80))
    assert consumer.position([material.at(partition=1)])[0].offset == 120
    assert offsets_of(read(consumer, 40)) == [(0, offset) for offset in range(80, 120)]


def test_seeking_to_the_committed_offset(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(30)])
    read(consumer, 4)
    with pytest.raises(KafkaException) as caught:
        consumer.seek(material.at(OFFSET_STORED))
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG


@pytest.mark.parametrize("start", [30, 110])
@pytest.mark.parametrize("offset", [OFFSET_INVALID])
def test_seeking_nowhere_resets(consumers: Consumers, material: Material, start: int, offset: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    read(consumer, 4)
    consumer.seek(material.at(offset))
    assert offsets_of(read(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("method", ["never assigned", "unassigned"])
def test_seeking_what_is_not_assigned(consumers: Consumers, material: Material, method: str) -> None:
    consumer = consumers()
    consumer.assign(material.both(30) if method == "unassigned" else [material.at(30)])
    read(consumer, 4)
    if method == "unassigned":
        consumer.incremental_unassign([material.at(partition=1)])
    codes = {"unassigned": KafkaError._STATE, "never assigned": KafkaError._UNKNOWN_PARTITION}
    with pytest.raises(KafkaException) as caught:
        consumer.seek(TopicPartition("nowhere", 0, 5) if method == "never assigned" else material.at(5, 1))
    assert caught.value.args[0].code() == codes[method]


@pytest.mark.parametrize("start", [0, 95, 100, 110])
def test_pausing(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    read(consumer, 3)
    consumer.pause([material.at()])
    assert consumer.poll(0.3) is None
    assert consumer.consume(10, 0.2) == []
    assert consumer.position([material.at()])[0].offset == start + 3
    consumer.resume([material.at()])
    found = offsets_of(read(consumer, material.end - start - 3))
    assert found == [(0, offset) for offset in range(start + 3, material.end)]


def test_pausing_one_of_two(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign(material.both(50))
    consumer.pause([material.at(partition=1)])
    assert offsets_of(read(consumer, 70)) == [(0, offset) for offset in range(50, 120)]
    consumer.resume([material.at(partition=1)])
    assert offsets_of(read(consumer, 70)) == [(1, offset) for offset in range(50, 120)]


def test_pausing_over_the_end_of_the_tier(consumers: Consumers, material: Material) -> None:
    """The application pauses after every record, also where librdkafka takes over from the store."""
    consumer = consumers()
    consumer.assign([material.at(97)])
    for offset in range(97, 104):
        assert offsets_of(read(consumer, 1)) == [(0, offset)]
        consumer.pause([material.at()])
        assert consumer.poll(0.02) is None
        consumer.resume([material.at()])


@pytest.mark.parametrize("offset", [0, 57, 99, 100, 110])
@pytest.mark.parametrize("start", [30, 110])
def test_seeking_while_paused(consumers: Consumers, material: Material, start: int, offset: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    read(consumer, 3)
    consumer.pause([material.at()])
    consumer.seek(material.at(offset))
    assert consumer.poll(0.2) is None
    consumer.resume([material.at()])
    assert offsets_of(read(consumer, 5)) == [(0, number) for number in range(offset, offset + 5)]


@pytest.mark.parametrize("offset", [0, 57, 102])
@pytest.mark.parametrize("start", [30, 110])
def test_seeking_back_while_paused(consumers: Consumers, material: Material, start: int, offset: int) -> None:
    """To read something once more after a while: where it was before is neither its position nor committed."""
    consumer = consumers(auto_commit_interval_ms=3_600_000)
    consumer.assign([material.at(start)])
    read(consumer, 5)
    consumer.pause([material.at()])
    consumer.seek(material.at(offset))
    for _ in range(4):
        assert consumer.poll(0.1) is None
    assert consumer.position([material.at()])[0].offset == OFFSET_INVALID
    consumer.resume([material.at()])
    read(consumer, 3)
    assert consumer.position([material.at()])[0].offset == offset + 3
    consumer.close()
    assert committed(consumers, material.at()) == offset + 3


def test_pausing_what_is_not_assigned(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.pause([TopicPartition("nowhere", 0), material.at()])
    consumer.resume([TopicPartition("nowhere", 0)])
    consumer.pause([])
    consumer.resume([])
    consumer.assign([material.at(95)])
    assert offsets_of(read(consumer, 25)) == [(0, offset) for offset in range(95, 120)]


@pytest.mark.parametrize("start", [50, 110])
def test_a_pause_outlasts_an_assignment(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    read(consumer, 3)
    consumer.pause([material.at()])
    consumer.unassign()
    consumer.assign([material.at(start)])
    assert consumer.poll(0.3) is None
    consumer.assign([material.at(start + 1)])
    assert consumer.poll(0.3) is None
    consumer.resume([material.at()])
    assert offsets_of(read(consumer, 1)) == [(0, start + 1)]


@pytest.mark.parametrize("start", [50, 110])
def test_a_pause_between_two_assignments(consumers: Consumers, material: Material, start: int) -> None:
    consumer = consumers()
    consumer.assign([material.at(start)])
    read(consumer, 3)
    consumer.unassign()
    consumer.pause([material.at()])
    consumer.assign([material.at(start)])
    assert consumer.poll(0.3) is None
    consumer.unassign()
    consumer.resume([material.at()])
    consumer.assign([material.at(start + 1)])
    assert offsets_of(read(consumer, 1)) == [(0, start + 1)]


def test_twice_is_as_once(consumers: Consumers, material: Material) -> None:
    consumer = consumers()
    consumer.assign([material.at(95)])
    for _ in range(2):
        consumer.pause([material.at()])
    consumer.resume([material.at()])
    consumer.resume([material.at()])
    assert offsets_of(read(consumer, 25)) == [(0, offset) for offset in range(95, 120)]


def test_polling_while_all_is_paused_keeps_callbacks_alive(consumers: Consumers, material: Material) -> None:
    statistics: list[str] = []
    consumer = consumers(stats_cb=statistics.append, statistics_interval_ms=100)
    consumer.assign([material.at(50)])
    consumer.pause([material.at()])
    assert poll_until(consumer, "statistics", lambda: len(statistics) > 1) == []

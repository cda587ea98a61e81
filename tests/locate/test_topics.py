"""Topics as users name them."""

from __future__ import annotations

import pytest

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.topics import one_topic, sorted_partitions, split_topic, unknown_topic
from remote_fetch.model import Survey, TopicIdPartition, Uuid

ONE, TWO = Uuid(bytes(16)), Uuid(bytes(15) + b"\x01")
A, B, C = TopicIdPartition(ONE, "t", 10), TopicIdPartition(ONE, "t", 9), TopicIdPartition(TWO, "t", 0)


def test_split() -> None:
    assert split_topic("my.topic-1") == ("my.topic-1", None)
    assert split_topic(f"t:{TWO}") == ("t", TWO)


@pytest.mark.parametrize("text", ["t:", "t:short", f"t:{TWO}x", "t:" + "!" * 22])
def test_a_malformed_id_is_an_error(text: str) -> None:
    with pytest.raises(UnknownTopic, match="not a topic id"):
        split_topic(text)


def test_sorted() -> None:
    other = TopicIdPartition(TWO, "a", 5)
    assert sorted_partitions([A, C, B, other]) == (other, B, A, C)


def test_one_topic() -> None:
    assert one_topic("t", [A, B], lambda: UnknownTopic("none")) == (B, A)
    with pytest.raises(UnknownTopic, match="none"):
        one_topic("t", [], lambda: UnknownTopic("none"))


def test_the_topics_that_there_are() -> None:
    said = str(unknown_topic("x", ["t", "a", "t"]))
    assert said.startswith(
        "no segment of topic 'x' is in the remote storage; topics there: a, t. Check the topic's name"
    )
    assert "topics there: none" in str(unknown_topic("x", []))
    assert "in the remote storage /tier; topics there: a." in str(unknown_topic("x", ["a"], Survey("/tier")))
    assert str(unknown_topic("order", ["a", "orders"])).endswith(
        "topics there: a, orders. The nearest name is 'orders'"
    )
    assert "The nearest" not in str(unknown_topic(f"t:{ONE}", ["t"])), "it is the id that is wrong"


def test_the_error_describes_a_place_without_topics() -> None:
    empty = Survey("/tier", "it is empty")
    assert str(unknown_topic("x", [], empty)) == (
        "no segment of topic 'x' is in the remote storage /tier: it is empty. "
        "Check remote.storage.url and remote.storage.layout"
    )
    assert str(unknown_topic(None, [], empty._replace(hint="Look elsewhere"))) == (
        "no segment is in the remote storage /tier: it is empty. Look elsewhere"
    )


def test_a_folder_of_another_layout_that_is_named_as_a_partition() -> None:
    other = Survey("/tier", "its names are those of 'aiven'", "Set remote.storage.layout=aiven")
    assert str(unknown_topic(None, ["t"], other)) == (
        "no segment is in the remote storage /tier: its names are those of 'aiven'. Set remote.storage.layout=aiven"
    )
    assert str(unknown_topic("t", ["t"], other)) == (
        "no segment of topic 't' is in the remote storage /tier; topics there: t. Set remote.storage.layout=aiven"
    )


def test_a_long_list_is_cut() -> None:
    said = str(unknown_topic("x", [f"t{number:02}" for number in range(21)]))
    assert "t19, ..." in said
    assert "t20" not in said


def test_several_ids_are_listed() -> None:
    with pytest.raises(UnknownTopic, match="2 topic ids") as raised:
        one_topic("t", [A, C], lambda: UnknownTopic("none"))
    assert f"t:{ONE}, t:{TWO}" in str(raised.value)

"""Topics as users name them."""

from __future__ import annotations

import pytest

from remote_fetch.errors import UnknownTopic
from remote_fetch.locate.topics import one_topic, sorted_partitions, split_topic
from remote_fetch.model import TopicIdPartition, Uuid

ONE, TWO = Uuid(bytes(16)), Uuid(bytes(15) + b"\x01")
A, B, C = TopicIdPartition(ONE, "t", 10), TopicIdPartition(ONE, "t", 9), TopicIdPartition(TWO, "t", 0)


def test_split() -> None:
    assert split_topic("my.topic-1") == ("my.topic-1", None)
    assert split_topic(f"t:{TWO}") == ("t", TWO)


@pytest.mark.parametrize("text", ["t:", "t:short", f"t:{TWO}x", "t:" + "!" * 22])
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(UnknownTopic, match="no topic id"):
        split_topic(text)


def test_sorted() -> None:
    other = TopicIdPartition(TWO, "a", 5)
    assert sorted_partitions([A, C, B, other]) == (other, B, A, C)


def test_one_topic() -> None:
    assert one_topic("t", [A, B], []) == (B, A)


def test_none_lists_what_there_is() -> None:
    with pytest.raises(UnknownTopic, match=r"no segment of topic 'x' .* topics there: a, t") as raised:
        one_topic("x", [], [A, C, TopicIdPartition(TWO, "a", 0)])
    assert "remote.storage.url" in str(raised.value)
    with pytest.raises(UnknownTopic, match="topics there: none"):
        one_topic("x", [], [])


def test_a_long_list_is_cut() -> None:
    many = [TopicIdPartition(ONE, f"t{number:02}", 0) for number in range(21)]
    with pytest.raises(UnknownTopic, match=r"t19, \.\.\.") as raised:
        one_topic("x", [], many)
    assert "t20" not in str(raised.value)


def test_several_ids_are_listed() -> None:
    with pytest.raises(UnknownTopic, match="2 topic ids") as raised:
        one_topic("t", [A, C], [])
    assert f"t:{ONE}, t:{TWO}" in str(raised.value)

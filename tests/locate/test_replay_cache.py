"""Which files of a cache are believed, and how its failures are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate import replay_cache
from remote_fetch.locate.replay_cache import ReplayCache, TopicOrigin
from remote_fetch.locate.saved_replay import SavedReplay, dump_replay
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.uploads import Rest
from remote_fetch.model import TopicIdPartition
from tests.locate.metadata_double import COUNT, DATA_ID, METADATA_ID, OTHER_ID, PARTITIONS, Files, segment

ORIGIN = TopicOrigin("cluster/1", METADATA_ID, COUNT)
PARTITION = PARTITIONS[0]
NUMBER = metadata_partition(DATA_ID, 0, COUNT)
NAME = f"cluster%2F1.{METADATA_ID}/{DATA_ID}.{NUMBER}.replay"


def timeline(partition: TopicIdPartition = PARTITION) -> Timeline:
    return Timeline(partition, (segment(partition, 0),), (0,), next_metadata_offset=1)


def saved(**changes: object) -> SavedReplay:
    found = SavedReplay(ORIGIN.at(NUMBER, 7, 1000), DATA_ID, 3, 0, (timeline(),), (Rest(),))
    return replace(found, **changes)  # type: ignore[arg-type]


def test_a_saved_replay_is_loaded_by_its_name() -> None:
    store = Files()
    cache = ReplayCache(store)
    assert cache.load(ORIGIN, DATA_ID, [NUMBER]) == {}
    assert cache.save(ORIGIN, [saved()])
    assert list(store.files) == [NAME]
    assert cache.load(ORIGIN, DATA_ID, range(COUNT)) == {NUMBER: saved()}
    assert cache.load(ORIGIN, OTHER_ID, range(COUNT)) == cache.load(ORIGIN, None, range(COUNT)) == {}
    assert cache.load(replace(ORIGIN, topic_id=OTHER_ID), DATA_ID, range(COUNT)) == {}
    assert cache.remarks == ()
    cache.close()
    assert store.closed


def test_the_replay_of_all_topics_has_a_file_of_its_own() -> None:
    store = Files()
    cache = ReplayCache(store)
    assert cache.save(ORIGIN, [saved(topic_id=None)])
    assert list(store.files) == [f"cluster%2F1.{METADATA_ID}/all.{NUMBER}.replay"]
    assert cache.load(ORIGIN, None, [NUMBER]) == {NUMBER: saved(topic_id=None)}


def test_a_cluster_id_cannot_leave_the_directory() -> None:
    store = Files()
    cache = ReplayCache(store)
    for cluster_id in ("../../etc", "..", "", "x" * 500):
        origin = replace(ORIGIN, cluster_id=cluster_id)
        assert cache.save(origin, [saved(origin=origin.at(NUMBER, 7, 0))])
        assert set(cache.load(origin, DATA_ID, [NUMBER])) == {NUMBER}
    assert all(name.count("/") == 1 and ".." not in name.split("/") and len(name) < 200 for name in store.files)


FOREIGN = {
    "cluster": saved(origin=replace(ORIGIN, cluster_id="other").at(NUMBER, 7, 0)),
    "metadata topic": saved(origin=replace(ORIGIN, topic_id=OTHER_ID).at(NUMBER, 7, 0)),
    "partition count": saved(origin=replace(ORIGIN, partition_count=COUNT + 1).at(NUMBER, 7, 0)),
    "metadata partition": saved(origin=ORIGIN.at(NUMBER + 1, 7, 0)),
    "topic": saved(topic_id=OTHER_ID, timelines=(), rests=()),
    "all topics": saved(topic_id=None),
    "a partition of another metadata partition": saved(
        timelines=(
            timeline(next(each for each in PARTITIONS if metadata_partition(DATA_ID, each.partition, COUNT) != NUMBER)),
        )
    ),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_reported_once_and_replaced(foreign: SavedReplay) -> None:
    store = Files()
    store.files[NAME] = dump_replay(foreign)
    cache = ReplayCache(store)
    for _ in range(2):
        assert cache.load(ORIGIN, DATA_ID, [NUMBER]) == {}
    (remark,) = cache.remarks
    assert remark.text.startswith(f"remote.locator.cache: {NAME} is not used and will be replaced: ")
    assert not remark.is_warning
    cache.save(ORIGIN, [saved()])
    assert cache.load(ORIGIN, DATA_ID, [NUMBER]) == {NUMBER: saved()}


def test_a_damaged_and_a_huge_file_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_cache, "MAX_FILE_BYTES", len(dump_replay(saved())))
    for data in (b"", b"RFRP", dump_replay(saved())[:-1], dump_replay(saved()) + b"x"):
        store = Files()
        store.files[NAME] = data
        cache = ReplayCache(store)
        assert cache.load(ORIGIN, DATA_ID, [NUMBER]) == {}
        assert len(cache.remarks) == 1
    monkeypatch.setattr(replay_cache, "MAX_FILE_BYTES", 10)
    store = Files()
    assert ReplayCache(store).save(ORIGIN, [saved()])
    assert store.files == {}, "a file that no reader would believe is not written"


def test_a_store_that_fails_is_left_alone_after_one_warning() -> None:
    store = Files("Permission denied")
    cache = ReplayCache(store)
    for _ in range(2):
        assert cache.load(ORIGIN, DATA_ID, [NUMBER]) == {}
        assert not cache.save(ORIGIN, [saved()])
    assert store.calls == 1
    (remark,) = cache.remarks
    assert remark.is_warning
    assert remark.text == (
        "remote.locator.cache: the saved timelines cannot be read: Permission denied. Reading goes on without it"
    )
    unwritable = ReplayCache(Files("Disk full"))
    assert not unwritable.save(ORIGIN, [saved()])
    assert "the timelines cannot be saved: Disk full" in unwritable.remarks[0].text


def test_a_topic_id_with_two_names_is_not_saved() -> None:
    store = Files()
    renamed = replace(timeline(), partition=replace(PARTITION, topic="renamed"))
    assert ReplayCache(store).save(ORIGIN, [saved(timelines=(renamed,))])
    assert store.files == {}

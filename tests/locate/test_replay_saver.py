"""Saves replays soon if much was read, else at the end, and loads them for the next reader."""

from __future__ import annotations

import threading

import pytest

from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate import replay_saver
from remote_fetch.locate.replay import Replay
from remote_fetch.locate.replay_cache import ReplayCache, TopicOrigin
from remote_fetch.locate.replay_saver import ReplaySaver
from tests.locate.metadata_double import COUNT, DATA_ID, METADATA_ID, PARTITIONS, Files, Message, record

ORIGIN = TopicOrigin("cluster/1", METADATA_ID, COUNT)
PARTITION = PARTITIONS[0]
NUMBER = metadata_partition(DATA_ID, 0, COUNT)


class Reader:
    """A reader of one metadata partition, and its saver."""

    def __init__(self, files: Files | None) -> None:
        self.replay = Replay.of(DATA_ID)
        self.replay.since_ms[NUMBER] = 1_700_000_000_000
        self.saver = ReplaySaver(
            None if files is None else ReplayCache(files),
            lambda origin: [(self.replay, self.replay.to_save(origin, DATA_ID))],
        )
        self.saver.origin = ORIGIN

    def read(self, *numbers: int) -> None:
        self.replay.take([Message(at, NUMBER, record(PARTITION, at)) for at in numbers], {}, "metadata")
        self.saver.save_soon(self.replay)


def loaded(files: Files) -> list[int]:
    """The end of each saved metadata partition."""
    return [saved.next_offset for saved in Reader(files).saver.load(DATA_ID, [NUMBER]).values()]


def test_a_long_reading_is_saved_while_the_reader_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_saver, "_SAVE_DELAY_S", 0.01)
    monkeypatch.setattr(replay_saver, "_SAVED_AFTER_OFFSETS", 6)
    files = Files()
    reader = Reader(files)
    reader.read(*range(5))
    timer = reader.saver._timer
    assert timer is not None
    timer.join(10)
    assert loaded(files) == [5]
    reader.read(5)
    assert reader.saver._timer is timer, "one record is not worth a thread"
    reader.saver.close()
    assert loaded(files) == [6]


def test_closing_ends_the_pause_before_a_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_saver, "_SAVE_DELAY_S", 600.0)
    monkeypatch.setattr(replay_saver, "_SAVED_AFTER_OFFSETS", 1)
    threads, files = threading.active_count(), Files()
    reader = Reader(files)
    reader.read(0)
    reader.read(1)
    assert threading.active_count() == threads + 1
    reader.saver.close()
    assert loaded(files) == [2]
    assert threading.active_count() == threads


def test_without_a_cache_or_an_identity_nothing_is_saved_or_loaded() -> None:
    files = Files()
    reader = Reader(files)
    reader.read(0)
    reader.saver.origin = None
    assert reader.saver.load(DATA_ID, [NUMBER]) == {}
    reader.saver.close()
    assert (files.calls, files.closed) == (0, True)
    plain = Reader(None)
    plain.read(0)
    assert not plain.saver.is_on
    assert plain.saver.load(DATA_ID, [NUMBER]) == {}
    plain.saver.close()
    assert plain.saver.remarks == ()


def test_the_report_of_the_last_save_can_be_heard_after_it() -> None:
    """A session passes the reports on at its end, after it has saved."""
    reader = Reader(Files("Disk full"))
    reader.read(0)
    reader.saver.close()
    (remark,) = reader.saver.remarks
    assert "the timelines cannot be saved: Disk full" in remark.text
    assert not reader.saver.is_on


def test_nothing_is_asked_for_no_metadata_partition() -> None:
    files = Files()
    assert Reader(files).saver.load(DATA_ID, []) == {}
    assert files.calls == 0

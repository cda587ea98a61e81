"""Iceberg tables that are rolled back, or whose older snapshots expire: what they hold then, and which files stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remote_fetch.model import Uuid
from tests.tables.tables import Topic, export, held, opened, same, target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def where(tmp_path: Path) -> dict[str, Any]:
    return target("iceberg", tmp_path / "lake")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "tier").grow(2)


@pytest.fixture
def other(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "other", Uuid(b"another topic id"), "other").grow(1)


def snapshot(where: dict[str, Any]) -> int:
    """The id of the table's snapshot."""
    inner: Any = opened(where)
    return int(inner._table.current_snapshot().snapshot_id)


def roll_back(where: dict[str, Any], to: int) -> None:
    inner: Any = opened(where)
    inner._table.manage_snapshots().rollback_to_snapshot(to).commit()


def ends(where: dict[str, Any], topic: Topic) -> dict[int, int] | None:
    """The offsets at which the table's partitions go on; None if it has nothing of the topic."""
    progress = opened(where).progress(topic.name)
    return None if progress is None else progress.ends


def test_the_progress_of_the_snapshot_counts(where: dict[str, Any], topic: Topic) -> None:
    export(topic, where)
    first = snapshot(where)
    export(topic.grow(), where)
    roll_back(where, first)
    assert ends(where, topic) == {0: 20, 1: 20}
    assert export(topic, where).rows == 20
    assert same(held(where), topic.rows())


def test_a_rollback_to_before_a_topic(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    export(other, where)
    first = snapshot(where)
    export(topic, where)
    roll_back(where, first)
    assert (ends(where, other), ends(where, topic)) == ({0: 10, 1: 10}, None)
    assert export(topic, where).rows == 40
    assert held(where).num_rows == 60


def test_snapshots_that_expired(where: dict[str, Any], topic: Topic, other: Topic) -> None:
    """pyiceberg takes the parent from a snapshot if that expires. The property of the table tells the progress."""
    export(topic, where)
    first = snapshot(where)
    export(other, where)
    inner: Any = opened(where)
    inner._table.maintenance.expire_snapshots().by_id(first).commit()
    inner.refresh()
    assert [one.parent_snapshot_id for one in inner._table.snapshots()] == [None]
    assert ends(where, topic) == {0: 20, 1: 20}
    assert export(topic, where).rows == 0

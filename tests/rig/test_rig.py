"""The rig's helpers do what their docstrings promise, as a real broker confirms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rig import node
from tests.rig.artifacts import missing_tool
from tests.rig.brokers import SharedBroker
from tests.rig.faults import failing_uploads, leader_epoch, new_leader_epoch, tier_folder
from tests.rig.metrics import topic_metrics
from tests.rig.node import Node
from tests.rig.rig import VERSIONS, Rig
from tests.rig.topics import (
    admin,
    broker_records,
    create_topic,
    delete_passing_topics,
    delete_topic,
    make_tiered,
    offsets,
    produce,
    wait_tiered,
)
from tests.rig.transactions import interleaved_transactions, open_transaction

NewTopic = Callable[[str], str]


def committed_and_all(rig: Rig, topic: str) -> tuple[set[int], set[int]]:
    """The offsets that each isolation level shows."""
    committed, everything = (
        {record.offset for record in broker_records(rig, topic, 0, level)}
        for level in ("read_committed", "read_uncommitted")
    )
    return committed, everything


def test_transactions_interleave_across_segments_and_one_stays_open(rig: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("transactions")
    create_topic(rig, topic)
    interleaved_transactions(rig, topic, (True, False, False, True, False), rounds=4)
    wait_tiered(rig, topic)
    committed, everything = committed_and_all(rig, topic)
    assert committed
    assert committed < everything
    folder = tier_folder(rig, topic, 0)
    assert len(list(folder.glob("*.log"))) > 3
    assert list(folder.glob("*.txnindex"))

    stable = offsets(rig, topic, 0).latest
    with open_transaction(rig, topic, 30) as transaction:
        produce(rig, topic, 20)
        assert offsets(rig, topic, 0).latest > stable + 49
        assert committed_and_all(rig, topic)[0] == committed
        transaction.end(commit=True)
    rig.until("the marker", lambda: len(committed_and_all(rig, topic)[0]) == len(committed) + 50)


def test_an_open_transaction_is_aborted_when_its_block_ends(rig: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("open")
    create_topic(rig, topic)
    with open_transaction(rig, topic, 30):
        pass
    wait_tiered(rig, topic)
    assert [len(offsets) for offsets in committed_and_all(rig, topic)] == [0, 30]


def test_timestamps_are_the_brokers_where_the_topic_says_so(rig: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("append-time")
    create_topic(rig, topic, message_timestamp_type="LogAppendTime")
    produce(rig, topic, 20, enable_idempotence=True)
    records = broker_records(rig, topic, 0, "read_uncommitted")
    assert [record.offset for record in records] == list(range(20))
    assert {record.timestamp_type for record in records} == {1}


def test_uploads_fail_and_heal(rig: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("uploads")
    make_tiered(rig, topic, 60)
    with failing_uploads(rig, topic, 0) as wait_failure:
        produce(rig, topic, 60, seed=1)
        wait_failure()
        wait_failure()
        assert offsets(rig, topic, 0).latest_tiered == 59
    wait_tiered(rig, topic)
    assert offsets(rig, topic, 0).latest_tiered == 119
    assert len(broker_records(rig, topic, 0, "read_committed")) == 120


@pytest.mark.scheduled
def test_a_restart_begins_a_leader_epoch(rig: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("epochs")
    make_tiered(rig, topic, 40)
    first = leader_epoch(rig, topic, 0)
    second = new_leader_epoch(rig, topic)
    produce(rig, topic, 40, seed=1)
    records = broker_records(rig, topic, 0, "read_committed")
    assert [record.leader_epoch for record in records] == [first] * 40 + [second] * 40


def test_metrics_tell_what_came_through_the_broker_and_what_of_it_from_the_tier(
    rig_43: Rig, new_topic: NewTopic
) -> None:
    rig, topic = rig_43, new_topic("metrics")
    make_tiered(rig, topic, 100, sizes=(200,))
    broker_records(rig, topic, 0, "read_committed")
    from_tier = topic_metrics(rig, topic)
    assert from_tier.bytes_out > 100 * 50
    assert from_tier.remote_fetch_bytes == from_tier.bytes_out
    assert from_tier.remote_fetch_requests > 0


def test_a_test_file_leaves_no_topics(rig: Rig, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig, "passing_topics", set())  # those of this file stay
    names = {new_topic("passing") for _ in range(3)}
    for name in names:
        create_topic(rig, name)
    deleted = names.pop()
    delete_topic(rig, deleted)
    delete_passing_topics(rig)
    rig.until("the topics to be gone", lambda: not names & admin(rig).list_topics(timeout=10).topics.keys())
    assert not rig.passing_topics


def test_a_node_that_does_not_start_shows_its_log(needs_broker: None, tmp_path: Path) -> None:
    node = Node(VERSIONS[0], tmp_path, {})
    (tmp_path / "server.properties").write_text("process.roles=dreamer\n")
    try:
        node.start()
        with pytest.raises(RuntimeError, match=r"(?s)did not start.*dreamer"):
            node.wait_started()
    finally:
        node.stop()
    assert not node.is_running


def test_what_is_waited_for_in_vain_is_said_with_the_log(rig_43: Rig) -> None:
    with pytest.raises(TimeoutError, match=r"(?s)not within 0.1 s: pigs to fly; the broker's log ends:.{100}"):
        rig_43.until("pigs to fly", lambda: False, timeout_s=0.1)


@pytest.mark.parametrize(("tools", "missing"), [((), "java"), (("java",), "mvn"), (("java", "mvn"), None)])
def test_a_missing_tool_is_named(
    tools: tuple[str, ...], missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in tools:
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = missing_tool()
    assert reason is None if missing is None else f"needs {missing}," in str(reason)


def test_a_node_that_gets_the_files_of_an_earlier_one_has_ids_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, data = tmp_path / "earlier", tmp_path / "data"
    earlier.mkdir()
    (earlier / "bootstrap.checkpoint").write_bytes(b"features")
    (earlier / "meta.properties").write_text("#\nnode.id=1\ndirectory.id=theirs\nversion=1\ncluster.id=theirs\n")
    monkeypatch.setattr(node, "formatted_folder", lambda version, roles: earlier)
    Node(VERSIONS[0], tmp_path / "node", {"log.dirs": str(data), "process.roles": "broker", "node.id": "2"}).format("c")
    assert (data / "bootstrap.checkpoint").read_bytes() == b"features"
    lines = (data / "meta.properties").read_text().splitlines()
    assert lines[:2] + lines[3:] == ["#", "node.id=2", "version=1", "cluster.id=c"]
    assert len(lines[2].removeprefix("directory.id=")) == 22


def test_a_shared_broker_starts_again_after_it_was_stopped(tmp_path: Path) -> None:
    happened: list[str] = []

    @contextmanager
    def start() -> Iterator[Rig]:
        happened.append("start")
        yield Rig(VERSIONS[0], {}, {}, tmp_path)
        happened.append("stop")

    broker = SharedBroker(start)
    broker.stop()
    first = broker.running()
    assert broker.running() is first
    broker.stop()
    broker.stop()
    assert broker.running() is not first
    broker.stop()
    assert happened == ["start", "stop"] * 2

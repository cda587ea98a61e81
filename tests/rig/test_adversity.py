"""Changes during a read: retention, a topic deleted and made again, restarts, uploads that fail.

Rules of the file:

- The progress of the read decides when a change happens, not a clock.
- The records are compared with those that the broker gave before the change.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import OffsetOutOfRange, TopicRecreated
from tests.own_processes import killed_after
from tests.rig import topics
from tests.rig.faults import failing_uploads, tier_folder
from tests.rig.meanwhile import PLANNED, read_meanwhile
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATION_OF_A_CHANGE, config_of, from_store, mixed_topic

NewTopic = Callable[[str], str]

RECORDS = 120
MIDDLE = 60
LOG_START_AGE_S = 1.0
"""Longer than a reader may use a known log start. Records that are deleted within that time count as fetched."""

pytestmark = pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)


def history(rig: Rig, topic: str, count: int = RECORDS) -> None:
    """Produce records that fill some segments, and wait until all are only in the tier."""
    topics.make_tiered(rig, topic, count, sizes=(300, 700))


def local_tail(rig: Rig, topic: str, count: int = 30) -> None:
    """Produce records after the history that stay on the broker's disk."""
    topics.set_config(rig, topic, local_retention_ms=-2)
    topics.produce(rig, topic, count, seed=77, sizes=(300, 400))


def retention(rig: Rig, topic: str) -> None:
    """Let the broker delete only some of the oldest segments that the read has not reached yet."""
    topics.set_config(rig, topic, retention_bytes=20_000)
    rig.until("a log start that has moved", lambda: topics.offsets(rig, topic, 0).earliest > MIDDLE)
    topics.set_config(rig, topic, retention_bytes=-1)
    moved_at = time.monotonic()
    rig.until("what was heard before to be old", lambda: time.monotonic() - moved_at > LOG_START_AGE_S)


def test_retention_passes_a_reader(rig: Rig, new_topic: NewTopic, isolation: str) -> None:
    """Offsets before the new log start are an error. They are not left out silently."""
    topic = new_topic("retention")
    history(rig, topic)
    local_tail(rig, topic)
    expected = topics.broker_records(rig, topic, 0, isolation)
    outcome = read_meanwhile(rig, topic, isolation, {MIDDLE // 2: lambda: retention(rig, topic)})
    log_start = topics.offsets(rig, topic, 0).earliest
    assert isinstance(outcome.error, OffsetOutOfRange)
    assert f"the log starts at {log_start} now" in str(outcome.error)
    assert outcome.error.offset == len(outcome.records) < log_start
    assert outcome.records == expected[: len(outcome.records)]


def test_retention_passes_a_reader_who_does_not_mind(rig: Rig, new_topic: NewTopic, isolation: str) -> None:
    """With auto.offset.reset=earliest the read goes on at the log start, and reports the deleted offsets."""
    topic = new_topic("retention")
    history(rig, topic)
    local_tail(rig, topic)
    expected = topics.broker_records(rig, topic, 0, isolation)
    outcome = read_meanwhile(
        rig, topic, isolation, {MIDDLE // 2: lambda: retention(rig, topic)}, auto_offset_reset="earliest"
    )
    log_start = topics.offsets(rig, topic, 0).earliest
    assert outcome.error is None
    before = [one for one in outcome.records if one.offset < log_start]
    assert before == expected[: len(before)]
    assert outcome.records[len(before) :] == expected[log_start:]
    assert outcome.said(f"offsets {len(before)} to {log_start - 1} are gone") == 1


@pytest.mark.parametrize("minds", [True, False])
def test_deletion_passes_a_reader_of_the_broker(rig: Rig, new_topic: NewTopic, isolation: str, minds: bool) -> None:
    topic = new_topic("retention")
    topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms="-2")
    topics.produce(rig, topic, 60, sizes=(600, 700))
    expected = topics.broker_records(rig, topic, 0, isolation)
    reset = {} if minds else {"auto_offset_reset": "earliest"}
    deletes = {PLANNED: lambda: topics.delete_records(rig, topic, 0, 40)}
    outcome = read_meanwhile(rig, topic, isolation, deletes, **reset)
    if minds:
        assert isinstance(outcome.error, OffsetOutOfRange)
        assert outcome.records == []
    else:
        assert outcome.error is None
        assert outcome.records == expected[40:]
    assert outcome.said("offsets 0 to 39 are gone") == (0 if minds else 1)


def test_an_object_that_is_gone_though_its_metadata_says_finished(
    rig: Rig, new_topic: NewTopic, isolation: str
) -> None:
    """The broker gives the records of the missing object, from its own disk."""
    topic = new_topic("gone")
    topics.create_topic(rig, topic, local_retention_ms="-2")
    topics.produce(rig, topic, RECORDS, sizes=(300, 700))
    rig.until("segments in the tier", lambda: topics.offsets(rig, topic, 0).latest_tiered > MIDDLE)
    expected = topics.broker_records(rig, topic, 0, isolation)
    logs = sorted(tier_folder(rig, topic, 0).glob("*.log"))
    outcome = read_meanwhile(rig, topic, isolation, {PLANNED: logs[1].unlink}, fetch_remote_when="always")
    assert (outcome.records, outcome.error) == (expected, None)
    assert outcome.report.fallbacks == {"not-found": 1}
    assert outcome.report.remote_gets > 0


def test_a_topic_made_anew_before_the_read(rig: Rig, new_topic: NewTopic, isolation: str) -> None:
    topic = new_topic("anew")
    history(rig, topic, 60)
    topics.delete_topic(rig, topic)
    history(rig, topic, 40)
    expected = topics.broker_records(rig, topic, 0, isolation)
    found, report = from_store(config_of(rig), topic, isolation)
    assert found == expected
    assert report.broker_records == 0


@pytest.mark.parametrize("place", ["store", "broker"])
def test_a_topic_made_anew_in_the_middle(rig: Rig, new_topic: NewTopic, isolation: str, place: str) -> None:
    """The read gives no record of the new topic, and ends with the reason."""
    topic = new_topic("anew")
    if place == "store":
        history(rig, topic)
        local_tail(rig, topic)
    else:
        topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms="-2")
        topics.produce(rig, topic, RECORDS)
    expected = topics.broker_records(rig, topic, 0, isolation)

    def make_anew() -> None:
        topics.delete_topic(rig, topic)
        topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms="-2")
        topics.produce(rig, topic, RECORDS + 60, seed=9)

    outcome = read_meanwhile(rig, topic, isolation, {MIDDLE if place == "store" else PLANNED: make_anew})
    assert isinstance(outcome.error, TopicRecreated)
    assert outcome.error.kind == "recreated"
    assert outcome.records == expected[: len(outcome.records)]
    assert outcome.report.broker_records == 0


def test_a_topic_deleted_in_the_middle(rig: Rig, new_topic: NewTopic, isolation: str) -> None:
    topic = new_topic("deleted")
    history(rig, topic)
    local_tail(rig, topic)
    expected = topics.broker_records(rig, topic, 0, isolation)
    outcome = read_meanwhile(rig, topic, isolation, {MIDDLE: lambda: topics.delete_topic(rig, topic)})
    assert isinstance(outcome.error, KafkaException)
    assert outcome.error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert outcome.records == expected[: len(outcome.records)]
    assert outcome.records


def test_a_restart_in_the_middle(rig: Rig, new_topic: NewTopic, isolation: str) -> None:
    """Without a broker the read of the tier goes on. For records that only the broker has, the read waits."""
    topic = new_topic("restart")
    mixed_topic(rig, topic)
    local_tail(rig, topic)
    expected = topics.broker_records(rig, topic, 0, isolation)
    node = rig.nodes[1]
    happenings = {MIDDLE: lambda: node.stop(kill=isolation == "read_uncommitted"), 2 * MIDDLE: node.start}
    outcome = read_meanwhile(rig, topic, isolation, happenings)
    node.wait_started()
    assert (outcome.records, outcome.error) == (expected, None)
    assert outcome.report.remote_gets > 0
    assert outcome.report.broker_records > 0
    # Once at most. On a slow machine one request may last as long as the whole restart.
    assert outcome.said("the broker does not answer") <= 1
    assert outcome.report.fallbacks == {}


def test_uploads_that_fail_and_are_repeated(rig: Rig, new_topic: NewTopic, isolation: str) -> None:
    """The metadata then has segments that were begun and never finished. The records still equal the broker's."""
    topic = new_topic("repeated")
    topics.create_topic(rig, topic)
    with failing_uploads(rig, topic, 0) as wait_failure:
        topics.produce(rig, topic, 80, sizes=(300, 700))
        wait_failure()
        during, _ = from_store(config_of(rig), topic, isolation)
        assert during == topics.broker_records(rig, topic, 0, isolation)
        wait_failure()
    topics.wait_tiered(rig, topic)
    after, report = from_store(config_of(rig), topic, isolation)
    assert after == during
    assert report.broker_records == 0
    assert report.fallbacks == {}


@pytest.mark.scheduled
def test_cat_through_a_restart(rig_43: Rig, new_topic: NewTopic, isolation: str) -> None:
    """The command line stops in the middle, because its output is not read until the broker is back."""
    topic, count = new_topic("cat"), 3 * RECORDS
    history(rig_43, topic, count)
    local_tail(rig_43, topic)
    where = ["-b", rig_43.bootstrap, "--url", str(rig_43.remote), "-t", topic, "-X", "log_level=0", "-q", "-e"]
    command = [
        sys.executable,
        "-m",
        "remote_fetch",
        "cat",
        *where,
        "--isolation",
        isolation,
        "-J",
        "--binary",
        "base64",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, killed_after(180, process):
        assert process.stdout is not None
        first = process.stdout.readline()
        rig_43.restart()
        lines = [first, *process.stdout]
        assert process.wait(60) == 0
    assert [json.loads(line)["offset"] for line in lines] == list(range(count + 30))

"""Real causes why a RemoteConsumer cannot read the store: configuration, permissions, deleted, recreated, damaged.

Rules of the file:

- The rules of test_consumer_faults hold here too, but the causes are real if they can be, not injected.
- A copy of the tier is damaged, so that the broker can still answer.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

import remote_fetch.consumer.consumer
from remote_fetch import RemoteConsumer
from remote_fetch.consumer.librdkafka import LibrdkafkaConsumer
from remote_fetch.consumer.remote import Remote
from remote_fetch.errors import SegmentNotFound
from remote_fetch.model import Buffer
from remote_fetch.testing.faults import FetchCall
from tests.rig import topics
from tests.rig.acls import allow, revoke_all
from tests.rig.consumer_faults import Delivered, Meddle, broken_store
from tests.rig.faults import tier_folder
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATION_OF_A_CHANGE, config_of

NewTopic = Callable[[str], str]

RECORDS, TAIL, MIDDLE, MOVED_TO = 120, 12, 60, 110
GUARDED = "guarded-consumers"
RETRY = {"fetch.remote.retry.backoff.ms": 20}
_DEADLINE_S = 120
_MORE_READS = 5


def history(rig: Rig, topic: str, *, tail: int = TAIL) -> int:
    """Produce records that are only in the tier, then some that stay local. Returns the end offset."""
    topics.make_tiered(rig, topic, RECORDS, sizes=(300, 700))
    topics.set_config(rig, topic, local_retention_ms=-2)
    topics.produce(rig, topic, tail, seed=77, sizes=(300, 400))
    return RECORDS + tail


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_no_storage_is_configured(
    rig: Rig, new_topic: NewTopic, isolation: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic("not-configured")
    end = history(rig, topic)
    config = {"bootstrap.servers": rig.bootstrap, "isolation.level": isolation}
    with caplog.at_level(logging.WARNING, "remote_fetch"), Delivered.by(config, topic, 0) as delivered:
        delivered.to_the_end(end)
        assert delivered.records == topics.broker_records(rig, topic, 0, isolation)
        assert all(delivered.through_broker)
        assert delivered.consumer.remote_metrics()["remote-fetch-fallbacks-by-reason"] == {"not-configured": 1}
    assert len([one for one in caplog.messages if "no remote storage is configured" in one]) == 1


def test_a_seek_just_after_the_topic_was_made_again(rig_43: Rig, new_topic: NewTopic, tmp_path: Path) -> None:
    """The store still has the old topic. The seek is for the offset of the new one, as in a plain consumer."""
    topic = new_topic("made-again")
    history(rig_43, topic)
    shutil.copytree(rig_43.remote, tmp_path / "tier")
    store = {"remote.storage.url": str(tmp_path / "tier"), "remote.locator": "listing"}
    with Delivered.by({**config_of(rig_43), **store}, topic, 0) as delivered:
        delivered.until(lambda: len(delivered.records) >= MIDDLE)
        assert not any(delivered.through_broker)
        topics.delete_topic(rig_43, topic)
        topics.create_topic(rig_43, topic, local_retention_ms=-2)
        topics.produce(rig_43, topic, RECORDS, seed=1)
        delivered.seek(topic, 20)
        delivered.to_the_end(RECORDS)
        assert delivered.records == topics.broker_records(rig_43, topic, 0, "read_committed", start=20)


def first_of(consumer: Consumer) -> int:
    """The offset of the next record, or the code of the error of a log that has no such offset."""
    deadline_s = time.monotonic() + 150
    while time.monotonic() < deadline_s:
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if message is not None and error is None:
            return int(message.offset() or 0)
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            return int(error.code())
    raise AssertionError("no record and no error")


def test_a_topic_that_is_not_tiered_is_no_fallback(rig: Rig, new_topic: NewTopic) -> None:
    topic = new_topic("plain")
    topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms="-2")
    topics.produce(rig, topic, 40)
    with Delivered.by(config_of(rig), topic, 0) as delivered:
        delivered.to_the_end(40)
        assert delivered.records == topics.broker_records(rig, topic, 0, "read_committed")
        assert (all(delivered.through_broker), delivered.reasons) == (True, set())


@pytest.fixture(scope="module")
def guarded(rig_43: Rig) -> Rig:
    """A broker with access control and a topic in its tier."""
    history(rig_43, GUARDED)
    return rig_43


@pytest.fixture
def reader(guarded: Rig) -> Iterator[dict[str, Any]]:
    """The configuration of a principal that may DESCRIBE the topic, but has no other permission yet."""
    allow(guarded, "reader", "DESCRIBE", GUARDED)
    yield config_of(guarded) | guarded.sasl_client("reader") | RETRY
    revoke_all(guarded, "reader")


def test_metadata_that_cannot_be_read(guarded: Rig, reader: dict[str, Any]) -> None:
    allow(guarded, "reader", "READ", GUARDED)
    refused = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})  # librdkafka reports it; no test needs the group
    with Delivered.by(reader, GUARDED, 0, tolerated=refused) as delivered:
        delivered.to_the_end(RECORDS + TAIL)
        assert delivered.records == topics.broker_records(guarded, GUARDED, 0, "read_committed")
        assert all(delivered.through_broker)
        assert delivered.reasons == {"unlocatable"}
        assert delivered.consumer.remote_metrics()["remote-fetch-requests-total"] == 0


def first_error(consumer: Consumer) -> int:
    """The code of the first error that a consumer of partition 0 reports. No record may come before it."""
    consumer.assign([TopicPartition(GUARDED, 0, 0)])
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            error = message.error()
            assert error is not None, "a record"
            if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                return error.code()
    raise TimeoutError("no error")


def test_who_may_not_read_the_topic_gets_the_brokers_error(guarded: Rig, reader: dict[str, Any]) -> None:
    """A consumer without READ on the topic gets the broker's error and no records, although the store holds them."""
    allow(guarded, "reader", "READ", "__remote_log_metadata")
    theirs = {name: value for name, value in reader.items() if not name.startswith(("remote.", "fetch.remote."))}
    plain = Consumer({**theirs, "group.id": "refused"})
    expected = first_error(plain)
    plain.close()
    with RemoteConsumer({**reader, "group.id": "refused", "fetch.remote.enabled": True}) as consumer:
        assert first_error(consumer) == expected == KafkaError.TOPIC_AUTHORIZATION_FAILED
        metrics = consumer.remote_metrics()
    assert set(metrics["remote-fetch-fallbacks-by-reason"]) == {"unauthorized"}
    assert (metrics["remote-fetch-requests-total"], metrics["broker-records-total"]) == (0, 0)


def test_new_credentials_are_for_all_connections(guarded: Rig, reader: dict[str, Any]) -> None:
    """A consumer that was made with an old password reads with the new one, on all its connections."""
    allow(guarded, "reader", "READ", GUARDED)
    allow(guarded, "reader", "READ", "__remote_log_metadata")
    old = {**reader, "sasl.password": "of yesterday", "group.id": "new-credentials", "fetch.remote.enabled": True}
    old["reconnect.backoff.max.ms"] = 200  # by default a refused client waits up to ten seconds
    # The principal has no right to the group. To commit at the end, librdkafka would wait for `session.timeout.ms`.
    old["enable.auto.commit"] = False
    with RemoteConsumer({**topics.QUIET, **old}) as consumer:
        consumer.set_sasl_credentials("reader", reader["sasl.password"])
        consumer.assign([TopicPartition(GUARDED, 0, 0)])
        deadline, given = time.monotonic() + _DEADLINE_S, list[int]()
        while len(given) < MIDDLE and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                given.append(message.offset() or 0)
        metrics = consumer.remote_metrics()
    assert given == list(range(MIDDLE))
    assert metrics["broker-records-total"] == 0
    assert metrics["remote-fetch-requests-total"] > 0


def test_only_the_applications_thread_touches_librdkafkas_consumer(
    rig: Rig, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for reads from the store, in a fallback and through the broker, whichever thread reads segments."""
    topic, callers = new_topic("one-thread"), set[int]()
    end = history(rig, topic)

    class Watched:
        def __init__(self, librdkafka: LibrdkafkaConsumer) -> None:
            self._librdkafka = librdkafka

        def __getattr__(self, name: str) -> Any:
            callers.add(threading.get_ident())
            return getattr(self._librdkafka, name)

    monkeypatch.setattr(
        remote_fetch.consumer.consumer, "Remote", lambda librdkafka, *rest: Remote(Watched(librdkafka), *rest)
    )
    readers = set[int]()

    def note() -> None:
        readers.add(threading.get_ident())

    with (
        broken_store(once(note, SegmentNotFound)) as (store, _),
        Delivered.by(config_of(rig) | RETRY | store, topic, 0) as delivered,
    ):
        delivered.to_the_end(end)
    assert set(delivered.through_broker) == {True, False}
    assert callers == {threading.get_ident()}
    assert readers.isdisjoint(callers)


def once(happening: Callable[[], object], raised: type[Exception] | None = None) -> Meddle:
    """Call `happening` before the first segment of the second half is read. Then the store answers, or raises."""
    lock, done = threading.Lock(), list[bool]()

    def meddle(call: FetchCall, data: Buffer | None) -> Buffer | None:
        if call.index_type is None and call.metadata.start_offset >= MIDDLE // 2:
            with lock:  # another segment may be read at the same time: its read must not fail before
                if not done:
                    done.append(True)
                    happening()
            if raised is not None:
                raise raised("injected")
        return data

    return meddle


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_a_topic_made_anew_in_the_middle(rig: Rig, new_topic: NewTopic, isolation: str) -> None:
    """The consumer gives all records of the new topic, and no record of the old topic after them."""
    topic = new_topic("anew")
    history(rig, topic)
    expected = topics.broker_records(rig, topic, 0, isolation)

    def make_anew() -> None:
        topics.delete_topic(rig, topic)
        topics.create_topic(rig, topic, remote_storage_enable="false", local_retention_ms="-2")
        topics.produce(rig, topic, 20, seed=9)

    config = {**config_of(rig), **RETRY, "isolation.level": isolation, "auto.offset.reset": "earliest"}
    gone = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
    patient = {"fetch.remote.read.timeout.ms": 200_000}
    with (
        broken_store(once(make_anew)) as (store, _),
        Delivered.by({**config, **store, **patient}, topic, 0, tolerated=gone) as delivered,
    ):
        delivered.to_the_end(20)
        anew = topics.broker_records(rig, topic, 0, isolation)
        old = delivered.records[: -len(anew)]
        assert delivered.records[-len(anew) :] == anew
        assert old == expected[: len(old)]


@pytest.mark.parametrize("when", ["before the hand-over", "while the broker serves"])
@pytest.mark.parametrize("policy", ["earliest", "error"])
def test_retention_during_a_fallback(
    rig: Rig, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, policy: str, when: str
) -> None:
    """Only offsets before the new log start are skipped, or are an error, by the application's setting."""
    topic = new_topic("retention")
    end = history(rig, topic)
    expected = topics.broker_records(rig, topic, 0, "read_committed")

    def move() -> None:
        topics.delete_records(rig, topic, 0, MOVED_TO)

    is_before = when == "before the hand-over"
    if is_before:  # on a busy machine the guard would hear of the new log start first, and there would be no fallback
        monkeypatch.setattr("remote_fetch.session.guard._LOG_START_S", _DEADLINE_S)
    config = {**config_of(rig), **RETRY, "auto.offset.reset": policy, "fetch.remote.read.timeout.ms": 200_000}
    with (
        broken_store(once(move if is_before else lambda: None, SegmentNotFound)) as (store, switch),
        Delivered.by({**config, **store}, topic, 0) as delivered,
    ):
        if not is_before:
            delivered.until(lambda: any(delivered.through_broker))
            assert delivered.records[-1].offset < MOVED_TO
            move()
            switch.is_on = False
        if policy == "error":
            with pytest.raises(KafkaException) as raised:
                delivered.to_the_end(end)
            assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
        else:
            delivered.to_the_end(end)
        assert "not-found" in delivered.reasons
        before = [one for one in delivered.records if one.offset < MOVED_TO]
        assert before == expected[: len(before)]
        after = expected[MOVED_TO:] if policy == "earliest" else []
        assert delivered.records[len(before) :] == after


def cut(path: Path) -> None:
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize(("damage", "reason"), [(Path.unlink, "not-found"), (cut, "corrupt")], ids=["gone", "cut"])
@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_an_object_is_damaged_and_put_back(
    rig: Rig, new_topic: NewTopic, tmp_path: Path, isolation: str, damage: Callable[[Path], None], reason: str
) -> None:
    topic = new_topic("damaged")
    end = history(rig, topic)
    copy = tmp_path / "copy"
    tier = tier_folder(rig, topic, 0)
    shutil.copytree(tier, copy / tier.relative_to(rig.remote))
    log = sorted((copy / tier.relative_to(rig.remote)).glob("*.log"))[2]
    whole = log.read_bytes()
    damage(log)
    config = {**config_of(rig), **RETRY, "remote.storage.url": str(copy), "isolation.level": isolation}
    # The broker needs a minute for what is left, so that the store is asked again before that also on a loaded machine.
    slow = {"fetch.queue.backoff.ms": 2000, "fetch.remote.read.timeout.ms": 60_000}
    with Delivered.by({**config, **slow}, topic, 0) as delivered:
        delivered.until(lambda: any(delivered.through_broker))
        assert delivered.reasons == {reason}
        assert delivered.records[-1].offset < MIDDLE
        log.write_bytes(whole)
        delivered.to_the_end(end)
        expected = topics.broker_records(rig, topic, 0, isolation)
        assert delivered.records == expected
        is_back = not all(delivered.through_broker[delivered.through_broker.index(True) :])
        for _ in range(_MORE_READS):
            if is_back:
                break
            # On a loaded machine the broker was done before the store was asked again: each failure doubles the pause.
            delivered.seek(topic, 0)
            delivered.to_the_end(end)
            assert delivered.records == expected
            is_back = not all(delivered.through_broker)
        assert is_back

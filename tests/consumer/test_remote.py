"""The remote half of a consumer: assignments while it closes, its observer, and how it closes."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException, TopicPartition

from remote_fetch.config import Config
from remote_fetch.consumer.callbacks import Callbacks
from remote_fetch.consumer.consumer import RemoteConsumer
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.remote import Remote
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.errors import Cancelled, ConfigError
from remote_fetch.observe import Event, Notice
from remote_fetch.session.session import Session
from tests.clock import Clock
from tests.consumer.fakes import FakeLibrdkafka, live
from tests.eventually import eventually


def fails(event: Event) -> None:
    raise ValueError("a dashboard is down")


@pytest.fixture
def librdkafka() -> FakeLibrdkafka:
    return FakeLibrdkafka()


@pytest.fixture
def remote(librdkafka: FakeLibrdkafka, tmp_path: Path) -> Iterator[Remote]:
    """A remote half whose observer fails."""
    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    remote = Remote(librdkafka, settings, Metrics(), fails, threading.RLock(), Callbacks())
    yield remote
    remote.close()


def test_positions_are_stored_if_no_call_is_made(
    remote: Remote, librdkafka: FakeLibrdkafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(time.monotonic())
    monkeypatch.setattr(remote.partitions.positions, "_clock", clock)
    remote.assign([TopicPartition("t", 0, OFFSET_END)], is_incremental=False)
    librdkafka.positions[0] = 9
    remote._store_if_idle()
    assert librdkafka.stored == {}, "they were stored a moment ago"
    clock.now_s += 0.11
    with ThreadPoolExecutor(1) as other, remote.gate:
        other.submit(remote._store_if_idle).result()
        assert librdkafka.stored == {}, "a call is under way, and stores them itself"
    remote._store_if_idle()
    assert librdkafka.stored == {0: 9}
    remote.begin_close()
    clock.now_s += 0.11
    librdkafka.stored.clear()
    remote._store_if_idle()
    assert librdkafka.stored == {}


@pytest.mark.parametrize("end", ["assign", "unassign", "incremental_unassign", "on_revoke", "begin_close"])
def test_a_position_up_to_the_committed_offset_is_stored_at_the_end_of_an_assignment(
    remote: Remote, librdkafka: FakeLibrdkafka, end: str
) -> None:
    first, second = TopicPartition("t", 0, 5), TopicPartition("t", 1, 5)
    remote.assign([first, second], is_incremental=False)
    for partition in remote.partitions.assigned.values():
        partition.stored.keep_above(60)
        partition.position.deliver(live(partition.number, 9))
    remote.flush_positions()
    remote.assign([TopicPartition("t", 2, 5)], is_incremental=True)
    assert librdkafka.stored == {0: OFFSET_INVALID, 1: OFFSET_INVALID}
    calls: dict[str, Callable[[], None]] = {
        "assign": lambda: remote.assign([], is_incremental=False),
        "unassign": remote.unassign,
        "incremental_unassign": lambda: remote.incremental_unassign([first]),
        "on_revoke": lambda: remote.on_revoke(None, [first], None),
        "begin_close": remote.begin_close,
    }
    calls[end]()
    ends_all = end not in ("incremental_unassign", "on_revoke")
    assert librdkafka.stored == {0: 10, 1: 10 if ends_all else OFFSET_INVALID}


def test_no_feed_reads_a_revoked_partition_in_the_callback(remote: Remote) -> None:
    """Its next owner gets a record that comes after a commit of the callback."""
    first, second = TopicPartition("t", 0, 5), TopicPartition("t", 1, 5)
    remote.assign([first, second], is_incremental=False)
    feeds: list[bool] = []

    def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
        partitions.clear()
        feeds.extend(each.feed is not None for each in remote.partitions.tracked([first, second]))

    remote.on_revoke(None, [first], on_revoke)
    assert feeds == [False, True]


def test_topics_are_looked_up_while_the_group_tells_its_offsets(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feed that has an offset looks its topic up at once."""
    requested: list[dict[str, int]] = []
    monkeypatch.setattr(remote._lookups, "request", requested.append)
    offsets = {"t": OFFSET_INVALID, "u": OFFSET_STORED, "v": 5, "w": OFFSET_END}
    remote.assign([TopicPartition(topic, 3, offset) for topic, offset in offsets.items()], is_incremental=False)
    assert requested == [{"t": 3, "u": 3}]


@pytest.mark.parametrize("commits_in_time", [False, True])
def test_librdkafka_asks_the_group_if_its_commits_take_long(
    remote: Remote, librdkafka: FakeLibrdkafka, monkeypatch: pytest.MonkeyPatch, *, commits_in_time: bool
) -> None:
    """It waits for them before it asks. Another client may get the offset from before them, and skip records."""

    def committed(*_: object, **__: object) -> None:
        if not commits_in_time:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    requested: list[object] = []
    monkeypatch.setattr(remote.committed, "request", requested.append)
    monkeypatch.setattr(librdkafka, "committed", committed)
    remote.assign([TopicPartition("t", 0, 5)], is_incremental=False)
    remote.assign([TopicPartition("t", 0, OFFSET_STORED)], is_incremental=False)
    remote.partitions.run_due_work()
    from_group = ("incremental_assign", [(0, OFFSET_STORED)])
    assert (len(requested), from_group in librdkafka.calls) == (int(commits_in_time), not commits_in_time)


@pytest.mark.parametrize("is_incremental", [False, True])
def test_an_assignment_while_closing_is_librdkafkas_alone(
    remote: Remote, librdkafka: FakeLibrdkafka, is_incremental: bool
) -> None:
    """It pauses no partition, starts no feed and makes no request to the group."""
    remote.begin_close()
    remote.assign([TopicPartition("t", 0), TopicPartition("t", 1, 7)], is_incremental=is_incremental)
    method = "incremental_assign" if is_incremental else "assign"
    assert librdkafka.calls_since() == [(method, [(0, -1001), (1, 7)])]
    assert remote.partitions.assigned == {}


def test_an_assignment_that_librdkafka_refuses_may_drop_the_partitions_of_before(
    remote: Remote, librdkafka: FakeLibrdkafka
) -> None:
    remote.assign([TopicPartition("t", 0, 5)], is_incremental=False)
    feed = remote.partitions.assigned["t", 0].feed
    librdkafka.refuses_assign = True
    with pytest.raises(KafkaException):
        remote.assign([TopicPartition("t", 0, 50), TopicPartition("t", 0, 50)], is_incremental=False)
    assert remote.partitions.assigned == {}
    assert feed is not None
    assert feed.is_cancelled


def test_an_assignment_that_librdkafka_refuses_may_keep_the_partitions_of_before(
    remote: Remote, librdkafka: FakeLibrdkafka
) -> None:
    """As in a group whose rebalances are incremental. Those that librdkafka fetches are paused for the new one."""
    remote.assign([TopicPartition("t", 0, 5), TopicPartition("t", 1, OFFSET_END)], is_incremental=False)
    librdkafka.refuses_assign = librdkafka.keeps_refused = True
    librdkafka.calls_since()
    with pytest.raises(KafkaException):
        remote.assign([TopicPartition("t", 1, 50)], is_incremental=False)
    assert list(remote.partitions.assigned) == [("t", 0), ("t", 1)]
    assert librdkafka.calls_since()[-2:] == [("pause", 1), ("resume", 1)]


@pytest.mark.parametrize("is_incremental", [False, True])
@pytest.mark.parametrize("consumes", [False, True])
def test_after_a_fatal_error_nothing_is_read_from_the_store(
    remote: Remote, librdkafka: FakeLibrdkafka, *, is_incremental: bool, consumes: bool
) -> None:
    """librdkafka drops all partitions, and later ones too. It calls no callback, and raises nothing."""
    remote.assign([TopicPartition("t", 0, 5), TopicPartition("t", 1, OFFSET_END)], is_incremental=is_incremental)
    feed = remote.partitions.assigned["t", 0].feed
    librdkafka.fail()
    message = remote.merge.consume(1, 60)[0] if consumes else remote.merge.poll(60)
    error = None if message is None else message.error()
    assert error is not None
    assert error.code() == KafkaError._FATAL
    assert remote.partitions.assigned == {}
    assert feed is not None
    assert feed.is_cancelled
    remote.assign([TopicPartition("t", 0, 5)], is_incremental=is_incremental)
    assert remote.partitions.assigned == {}


def test_nothing_is_assigned_if_the_callback_closed_the_consumer(remote: Remote, librdkafka: FakeLibrdkafka) -> None:
    """librdkafka's handle is gone by then."""

    def callback(consumer: object, partitions: list[TopicPartition]) -> None:
        remote.begin_close()
        remote.close()

    remote.on_assign(None, [TopicPartition("t", 0)], callback)
    assert librdkafka.calls_since() == []


def test_an_observer_that_fails_is_logged(remote: Remote, caplog: pytest.LogCaptureFixture) -> None:
    """It is called in the threads that bring records."""
    remote.session.observe(Notice("something"))
    assert "an observer failed" in caplog.text


def test_an_observer_that_panics_ends_no_thread(
    librdkafka: FakeLibrdkafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A library in Rust raises no Exception then. In the main thread such an error may come of a signal."""

    class Panic(BaseException):
        """As that of pyo3."""

    def panics(event: Event) -> None:
        raise Panic

    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    remote = Remote(librdkafka, settings, Metrics(), panics, threading.RLock(), Callbacks())
    try:
        with ThreadPoolExecutor(1) as other:
            other.submit(remote.session.observe, Notice("something")).result()
        assert "an observer failed" in caplog.text
        with pytest.raises(Panic):
            remote.session.observe(Notice("something"))
    finally:
        remote.close()


def test_the_session_of_a_forgotten_consumer_is_closed(
    librdkafka: FakeLibrdkafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the clients that it shares would stay until the process ends. No thread stays, also no dummy of one."""
    before = set(threading.enumerate())
    closed, close = threading.Event(), Session.close

    def note(session: Session) -> None:
        close(session)
        assert threading.current_thread().is_alive()  # as a join does, if the session has threads
        closed.set()

    monkeypatch.setattr(Session, "close", note)
    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    remote = Remote(librdkafka, settings, Metrics(), fails, threading.RLock(), Callbacks())
    remote.assign([TopicPartition("t", 0, 5)], is_incremental=False)
    del remote
    gc.collect()
    assert closed.wait(30)
    assert eventually(lambda: set(threading.enumerate()) <= before)


AT_EXIT = """
from remote_fetch import RemoteConsumer

class Application:
    def __init__(self):
        properties = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "group.id": "g"}
        self.consumer = RemoteConsumer(
            properties | {"fetch.remote.enabled": True, "remote.storage.url": "memory://tier"}
        )

    def __del__(self):
        self.consumer.close()
        print("closed")

application = Application()
"""


def test_a_consumer_is_closed_when_the_interpreter_ends() -> None:
    """No new thread begins there, and a wait for one would have no end."""
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("closed\n", "", 0)


def test_closing_does_not_wait_for_a_broker_that_does_not_answer(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may be waiting for an answer: its client is closed after that request."""
    monkeypatch.setattr("remote_fetch.consumer.remote._CLOSE_S", 0.05)
    request_ended, credentials_set, close = threading.Event(), threading.Event(), remote.session.close

    def slow_close() -> None:
        assert request_ended.wait(60)
        close()
        credentials_set.set()

    with monkeypatch.context() as patch:
        patch.setattr(remote.session, "close", slow_close)
        patch.setattr(remote.session, "set_sasl_credentials", lambda username, password: slow_close())
        remote.set_sasl_credentials("me", "secret")
        remote.close()
        assert not credentials_set.is_set()
        request_ended.set()
        assert credentials_set.wait(60)


def test_a_fetcher_that_cannot_be_closed_keeps_no_thread_and_no_session_open(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def fail() -> int:
        raise OSError("a connection that was closed before")

    with monkeypatch.context() as patch:
        patch.setattr(remote.session.reader, "close", fail)
        patch.setattr(remote.session, "close", lambda: closed.append("session"))
        patch.setattr(remote._workers, "close", lambda timeout_s: closed.append("workers"))
        with pytest.raises(OSError, match="closed before"):
            remote.close()
    assert closed == ["workers", "session"]


def test_credentials_that_are_refused_are_an_error_of_the_call(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(username: str, password: str) -> None:
        raise ConfigError(f"a user name with a colon: {username}")

    monkeypatch.setattr(remote.session, "set_sasl_credentials", refuse)
    with pytest.raises(ConfigError, match="a user name with a colon: a:b"):
        remote.set_sasl_credentials("a:b", "secret")


def test_an_error_that_comes_late_is_logged(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("remote_fetch.consumer.remote._CLOSE_S", 0.0)
    may_fail = threading.Event()

    def refuse(username: str, password: str) -> None:
        assert may_fail.wait(60)
        raise ConfigError("a user name with a colon")

    monkeypatch.setattr(remote.session, "set_sasl_credentials", refuse)
    remote.set_sasl_credentials("a:b", "secret")
    may_fail.set()
    assert eventually(lambda: "a user name with a colon" in caplog.text)


def test_partitions_are_told_as_they_were_assigned(tmp_path: Path) -> None:
    """By a plain consumer too, so that `assign(assignment())` names the leader epochs again."""
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "remote.storage.url": str(tmp_path)}
    given = [
        TopicPartition("t", 0, 5, metadata="m", leader_epoch=3),
        TopicPartition("t", 1, OFFSET_END, leader_epoch=7),
        TopicPartition("t", 2),
    ]
    for is_enabled in (False, True):
        consumer = RemoteConsumer({**config, "fetch.remote.enabled": is_enabled})
        try:
            consumer.assign(given)
            told = [
                (found.partition, found.offset, found.leader_epoch, found.metadata) for found in consumer.assignment()
            ]
        finally:
            consumer.close()
        assert told == [(0, 5, 3, "m"), (1, OFFSET_END, 7, None), (2, OFFSET_STORED, None, None)]


def test_positions_have_the_metadata_of_the_question(tmp_path: Path) -> None:
    """As those of a plain consumer, so that `commit(offsets=position(assignment()))` commits it."""
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "remote.storage.url": str(tmp_path)}
    for is_enabled in (False, True):
        consumer = RemoteConsumer({**config, "fetch.remote.enabled": is_enabled, "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition("t", 0, OFFSET_END, metadata="m"), TopicPartition("t", 1, OFFSET_END)])
            told = [(found.offset, found.metadata) for found in consumer.position(consumer.assignment())]
            assert told == [(OFFSET_INVALID, "m"), (OFFSET_INVALID, None)]
            if consumer._remote is not None:
                consumer._remote.partitions.assigned["t", 0].position.follow(9, 4)
                (found,) = consumer.position([TopicPartition("t", 0, metadata="k", leader_epoch=7)])
                assert (found.offset, found.leader_epoch, found.metadata) == (9, 4, "k")
        finally:
            consumer.close()


def test_a_change_of_the_subscription_expects_a_revocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "remote.storage.url": str(tmp_path)}
    with RemoteConsumer({**config, "fetch.remote.enabled": True}) as consumer:
        assert consumer._remote is not None
        expected: list[str] = []
        monkeypatch.setattr(consumer._remote.merge, "flush_position", lambda: expected.append("flush"))
        monkeypatch.setattr(consumer._remote.merge, "expect_callback", lambda: expected.append("callback"))
        consumer.subscribe(["t"])
        consumer.unsubscribe()
        assert expected == 2 * ["flush", "callback"]


def test_a_consumer_that_cannot_store_its_positions_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later calls of its callbacks take no position from librdkafka, which moves past records that it drops."""

    def fail() -> None:
        raise KafkaException("no positions")

    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "remote.storage.url": str(tmp_path)}
    consumer = RemoteConsumer({**config, "fetch.remote.enabled": True})
    remote = consumer._remote
    assert remote is not None
    monkeypatch.setattr(remote, "flush_positions", fail)
    with pytest.raises(KafkaException, match="no positions"):
        consumer.close()
    assert remote.partitions.positions._are_frozen
    assert remote.session.brokers is not None
    with pytest.raises(Cancelled):
        remote.session.brokers.cluster.describe("t")
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize("method", ["poll", "consume"])
def test_a_close_in_a_callback_waits_for_the_call_that_runs(tmp_path: Path, method: str) -> None:
    """librdkafka goes on in its queue after the callback. A close would free the queue, and the process would crash."""
    found: list[list[TopicPartition]] = []

    def tell(_: str) -> None:
        consumer.close()
        found.append(consumer.assignment())  # a closed consumer raises RuntimeError

    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "remote.storage.url": str(tmp_path), "log_level": 2}
    more = {"fetch.remote.enabled": True, "statistics.interval.ms": 50, "stats_cb": tell}
    consumer = RemoteConsumer({**config, **more})
    assert getattr(consumer, method)(timeout=150) in (None, [])
    assert found[0] == []
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize("method", ["poll", "consume"])
def test_a_close_in_a_handler_of_a_signal_waits_for_the_call_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A handler may run at any place of the call, also while the call holds a lock that a close needs."""
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "remote.storage.url": str(tmp_path), "log_level": 2}
    consumer = RemoteConsumer({**config, "fetch.remote.enabled": True})
    remote = consumer._remote
    assert remote is not None
    found: list[list[TopicPartition]] = []

    def handle(_: float) -> None:
        consumer.close()
        found.append(consumer.assignment())  # a closed consumer raises RuntimeError

    monkeypatch.setattr(remote.merge._workers, "wait", handle)
    consumer.assign([TopicPartition("t", 0, 5)])
    assert getattr(consumer, method)(timeout=150) in (None, [])
    assert [len(partitions) for partitions in found] == [1]
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_a_close_in_a_callback_of_a_close_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "remote.storage.url": str(tmp_path)}
    consumer = RemoteConsumer({**config, "fetch.remote.enabled": True})
    remote = consumer._remote
    assert remote is not None
    begun: list[int] = []

    def close_again() -> None:
        begun.append(1)
        consumer.close()

    monkeypatch.setattr(remote, "flush_positions", close_again)
    consumer.close()
    assert begun == [1]

"""A Cluster with answers that no broker gives on request, and the settings of its clients.

Rules of the file:

- A scripted consumer or AdminClient takes the place of the real client.
- The answers of real brokers are in tests/rig.
"""

from __future__ import annotations

import threading
import time
import tracemalloc
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Uuid as KafkaUuid
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from remote_fetch.errors import Cancelled
from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate import contact
from remote_fetch.locate.cluster import Cluster
from remote_fetch.model import IsolationLevel, LogBounds, TopicIdPartition, Uuid

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)
LEVEL = IsolationLevel.READ_UNCOMMITTED
_EARLIEST = type(OffsetSpec.earliest())  # type: ignore[no-untyped-call]


class Answers:
    """A consumer that gives one answer after the other, the last one again and again; an error code is raised."""

    def __init__(self, *answers: int | TopicPartition) -> None:
        self.answers = list(answers)
        self.asked: list[TopicPartition] = []
        self.is_closed = False

    def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.asked += wanted
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return [answer]

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 36, 38

    def assignment(self) -> list[TopicPartition]:
        return []

    def close(self) -> None:
        self.is_closed = True


def cluster_with(answers: Any, timeout_ms: int = 60_000) -> Cluster:
    cluster = Cluster({}, timeout_ms=timeout_ms)
    cluster._consumers[LEVEL, "reader"] = answers
    return cluster


@pytest.mark.parametrize("not_ready", [KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.UNKNOWN])
def test_a_leader_that_is_not_ready_is_asked_again(not_ready: int) -> None:
    answers = Answers(not_ready, not_ready, TopicPartition("t", 0, 42))
    cluster = cluster_with(answers)
    assert cluster.offset_for_time(PARTITION, -5, LEVEL) == 42
    assert [asked.offset for asked in answers.asked] == [0, 0, 0]
    cluster.close()
    assert answers.is_closed


class Moving(Answers):
    """A consumer that has to hear of a new leader first."""

    def __init__(self, *codes: int) -> None:
        super().__init__(TopicPartition("t", 0, -1))
        self.codes = list(codes)

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 36, 38


class Forgetful(Answers):
    """A consumer that does not know the leader, and does not look for it until it is asked for the topic."""

    def __init__(self, answer: int | TopicPartition) -> None:
        super().__init__(KafkaError._UNKNOWN_PARTITION)
        self.answer = answer
        self.topics: list[str] = []

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        self.offsets_for_times([], 0)
        return 36, 38

    def list_topics(self, topic: str, timeout: float) -> None:
        self.topics.append(topic)
        self.answers = [self.answer]


def test_a_leader_that_is_not_known_any_more_is_looked_up() -> None:
    known = TopicPartition("t", 0, 42)
    ends, time = Forgetful(known), Forgetful(known)
    assert cluster_with(ends).log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)
    assert cluster_with(time).offset_for_time(PARTITION, 5, LEVEL) == 42
    assert ends.topics == time.topics == ["t"]


def test_a_client_that_has_lost_all_brokers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Forgetful):
        def list_topics(self, topic: str, timeout: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    lost = Lost(0)
    cluster = cluster_with(lost)
    cluster._admin = cast(Any, Log(3, None))
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(10, 100), "the other client still has its brokers"
    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", lambda _: Moving())
    assert cluster.log_bounds(PARTITION, LEVEL, by_consumer=True) == LogBounds(36, 38)
    assert isinstance(cluster._consumers[LEVEL, "reader"], Moving), "the next slice of the question gets a new one"
    assert not lost.is_closed, "another thread may still use it"


class Busy(Moving):
    """A consumer that gives no answer at first. It may fetch."""

    def __init__(self, fetches: bool, *codes: int) -> None:
        super().__init__(*codes)
        self.fetches = fetches
        self.timeouts: list[float] = []

    def get_watermark_offsets(self, *_: object, **more: object) -> tuple[int, int]:
        self.timeouts.append(cast(float, more["timeout"]))
        return super().get_watermark_offsets()

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0)] if self.fetches else []


@pytest.mark.parametrize("fetches", [False, True])
def test_a_client_without_an_answer_is_replaced_unless_it_fetches(
    monkeypatch: pytest.MonkeyPatch, fetches: bool
) -> None:
    """A broker answers one connection in order, so a slow fetch delays the answer, and would begin again."""
    busy = Busy(fetches, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT)
    cluster = cluster_with(busy, timeout_ms=30_000)
    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", lambda _: Moving())
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)
    assert (cast(Any, cluster._consumers[LEVEL, "reader"]) is busy) is fetches


def test_a_client_that_is_only_connecting_is_kept_for_half_a_slice_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a slow line a new client needs more than a slice. Each next one would need it as well."""
    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", lambda _: pytest.fail("another client"))
    busy = Busy(False, KafkaError._TIMED_OUT)
    cluster = cluster_with(busy, timeout_ms=30_000)
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)
    assert busy.timeouts == pytest.approx([3, 1.5], abs=0.5)
    found = SimpleNamespace(topics={"a": None})

    class Connecting(Described):
        def list_topics(self, timeout: float) -> object:
            asked_s.append(timeout)
            self.answer = found if len(asked_s) == 2 else KafkaError._TIMED_OUT
            return super().list_topics(timeout)

    asked_s: list[float] = []
    clients = [Connecting(0), Described(found)]
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", lambda _: clients.pop(0))
    slow = Cluster({}, timeout_ms=30_000)
    assert slow.names() == ("a",)
    assert asked_s == pytest.approx([3, 1.5], abs=0.5)
    assert slow.names() == ("a",)
    assert clients == [], "a client that was answered before is replaced at once"


def test_silences_of_one_isolation_level_count_beside_answers_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level has a client of its own."""
    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", lambda _: Moving())
    committed = IsolationLevel.READ_COMMITTED
    busy = Busy(False)
    cluster = cluster_with(busy, timeout_ms=30_000)
    cluster._consumers[committed, "reader"] = cast(Any, Moving())
    cluster.log_bounds(PARTITION, LEVEL)
    cluster.log_bounds(PARTITION, committed)
    busy.codes = [KafkaError._TIMED_OUT]
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)
    assert cast(Any, cluster._consumers[LEVEL, "reader"]) is not busy, "it was answered before"


def test_a_closed_cluster_holds_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AdminClient has no `close`. It ends with its last reference."""
    found = SimpleNamespace(topics={"a": None})
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", lambda _: Described(found))
    cluster = Cluster({}, timeout_ms=60_000)
    cluster.names()
    ended = weakref.ref(cast(Any, cluster._admin))
    cluster.close()
    assert ended() is None


@pytest.mark.parametrize(("fetches", "longest_s"), [(False, 3), (True, 30)])
def test_a_question_for_the_ends_leaves_time_for_another_leader(fetches: bool, longest_s: float) -> None:
    """librdkafka ties a question to one broker. If it has timed out, it also breaks off the fetch that is before it."""
    busy = Busy(fetches, KafkaError._TRANSPORT)
    assert cluster_with(busy, timeout_ms=30_000).log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)
    assert busy.timeouts == pytest.approx([longest_s] * 2, abs=1)


def test_a_leader_may_take_long_to_find_a_time() -> None:
    """It may look into the tier."""
    timeouts: list[float] = []

    class Noting(Answers):
        def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            timeouts.append(timeout)
            return super().offsets_for_times(wanted, timeout)

    noting = Noting(KafkaError._DESTROY_BROKER, TopicPartition("t", 0, 42))
    assert cluster_with(noting, timeout_ms=30_000).offset_for_time(PARTITION, 5, LEVEL) == 42
    assert timeouts == pytest.approx([30, 30], abs=1)


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_a_partition_without_a_leader_is_looked_up_once(code: int) -> None:
    """The caller decides how long to wait for one."""
    forgetful = Forgetful(code)
    with pytest.raises(KafkaException) as caught:
        cluster_with(forgetful).log_bounds(PARTITION, LEVEL)
    assert caught.value.args[0].code() == code
    assert forgetful.topics == ["t"]


def test_the_ends_are_asked_of_the_new_leader() -> None:
    moving = Moving(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.FENCED_LEADER_EPOCH)
    assert cluster_with(moving).log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._DESTROY_BROKER,  # the brokers do not list the dead leader any more
        KafkaError._TRANSPORT,
        KafkaError.OFFSET_NOT_AVAILABLE,  # the new leader does not know the high watermark yet
    ],
)
def test_a_leader_that_has_died_is_asked_again_for_the_ends(code: int) -> None:
    moving = Moving(code, code)
    cluster = cluster_with(moving)
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)
    assert cast(Any, cluster._consumers[LEVEL, "reader"]) is moving, "it still has other brokers"


def test_the_ends_are_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead(Moving):
        def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", lambda _: Dead())
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        Cluster({}, timeout_ms=30_000).log_bounds(PARTITION, LEVEL, timeout_s=0.2)


def test_it_is_not_asked_for_ever() -> None:
    cluster = cluster_with(Answers(KafkaError.REPLICA_NOT_AVAILABLE), timeout_ms=150)
    with pytest.raises(KafkaException):
        cluster.offset_for_time(PARTITION, 1, LEVEL)


def test_another_error_is_not_asked_again() -> None:
    answers = Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicPartition("t", 0, 42))
    with pytest.raises(KafkaException):
        cluster_with(answers).offset_for_time(PARTITION, 1, LEVEL)


def test_an_error_inside_an_answer_counts_as_one() -> None:
    class Failed(TopicPartition):
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

    with pytest.raises(KafkaException):
        cluster_with(Answers(Failed("t", 0, 42))).offset_for_time(PARTITION, 1, LEVEL)


def test_librdkafkas_end_is_no_offset() -> None:
    assert cluster_with(Answers(TopicPartition("t", 0, -1))).offset_for_time(PARTITION, 1, LEVEL) is None


def test_who_reads_to_an_end_and_asks_again_does_not_wait_behind_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def make(properties: dict[str, Any]) -> Answers:
        made.append(properties)
        return Answers()

    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", make)
    cluster = Cluster({"fetch.wait.max.ms": 500}, timeout_ms=60_000)
    catcher = cast("Answers", cluster.catcher())
    assert cast("Answers", cluster.catcher()) is catcher
    assert cast("Answers", cluster.consumer(IsolationLevel.READ_UNCOMMITTED)) is not catcher, (
        "a tiered topic may need the wait"
    )
    assert [properties["fetch.wait.max.ms"] for properties in made] == [10, 500]
    cluster.close()
    assert catcher.is_closed


def test_the_ends_come_from_the_client_that_is_connected_else_from_a_consumer() -> None:
    consumer, log = Moving(), cast(Any, Log(3, None))
    cluster = cluster_with(consumer)
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(36, 38), "a new AdminClient would take seconds"
    cluster._admin = log
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(10, 100)
    assert cluster.log_bounds(PARTITION, LEVEL, by_consumer=True) == LogBounds(36, 38)
    cluster._admin = cast(Any, Fenced(3, None))
    assert cluster.log_bounds(PARTITION, LEVEL) == LogBounds(36, 38)


class Described:
    """An AdminClient whose broker answers, or has died. `list_topics` gives the answer without a future."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def describe_topics(self, *_: object, request_timeout: float, **__: object) -> dict[str, Future[object]]:
        assert 0 < request_timeout <= 3
        future: Future[object] = Future()
        if isinstance(self.answer, int):
            future.set_exception(KafkaException(KafkaError(self.answer)))
        else:
            future.set_result(self.answer)
        return {"t": future}

    def list_topics(self, timeout: float) -> object:
        assert 0 < timeout <= 3
        return self.describe_topics(request_timeout=timeout)["t"].result()

    def describe_cluster(self, request_timeout: float) -> Future[object]:
        return self.describe_topics(request_timeout=request_timeout)["t"]

    def poll(self, timeout: float) -> None:
        pass


def test_another_client_is_made_where_a_broker_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has lost the broker it would ask waits for that one until its deadline, and would for ever."""
    found = SimpleNamespace(
        topic_id=KafkaUuid(1, 2), partitions=[SimpleNamespace(id=0, isr=[])], authorized_operations=None
    )
    clients = [Described(KafkaError._TIMED_OUT), Described(KafkaError._TIMED_OUT), Described(found)]
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", lambda _: clients.pop(0))
    cluster = Cluster({}, timeout_ms=60_000)
    assert cluster.describe("t").partitions == (0,)
    assert cluster.describe("t").partitions == (0,)
    assert clients == []


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER])
def test_every_question_of_an_admin_client_may_be_asked_of_another(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    found = SimpleNamespace(topics={"b": None, "a": None}, cluster_id="an id")
    for ask, answer in ((Cluster.names, ("a", "b")), (Cluster.cluster_id, "an id")):
        clients = [Described(code), Described(found)]
        monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", lambda _, clients=clients: clients.pop(0))
        assert cast(Any, ask)(Cluster({}, timeout_ms=60_000)) == answer
        assert clients == []


def test_the_look_for_new_partitions_may_be_repeated() -> None:
    class Deaf(Forgetful):
        def list_topics(self, topic: str, timeout: float) -> None:
            assert 0 < timeout <= 3
            super().list_topics(topic, timeout)
            if len(self.topics) < 2:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    deaf = Deaf(0)
    cluster_with(deaf, timeout_ms=60_000).learn_partitions("t", LEVEL)
    assert deaf.topics == ["t", "t"]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_describe_raises_the_error_of_every_client(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", lambda _: Described(code))
    with pytest.raises(KafkaException):
        Cluster({}, timeout_ms=50).describe("t")


class Log:
    """A partition as all three clients see it: ends, leader epoch, and the result of a fetch from an offset."""

    def __init__(self, epoch: int | None, probe: int | None) -> None:
        self.epoch, self.probe = epoch, probe
        self.assigned: list[TopicPartition] = []

    def list_offsets(self, wanted: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[object]]:
        future: Future[object] = Future()
        is_start = type(next(iter(wanted.values()))) is _EARLIEST
        future.set_result(SimpleNamespace(offset=10 if is_start else 100, leader_epoch=self.epoch))
        return dict.fromkeys(wanted, future)

    def assign(self, wanted: list[TopicPartition]) -> None:
        self.assigned += wanted

    def seek(self, wanted: TopicPartition) -> None:
        assert wanted == self.assigned[-1]

    def poll(self, _: float) -> object:
        error = None if self.probe is None else KafkaError(self.probe)
        return SimpleNamespace(error=lambda: error, topic=lambda: "t", partition=lambda: 0)

    def list_topics(self, topic: str, timeout: float) -> None: ...

    def assignment(self) -> list[TopicPartition]:
        return []

    def unassign(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("epoch", "end_offset", "probe", "asked", "holds"),
    [
        (3, 100, KafkaError._AUTO_OFFSET_RESET, False, True),  # the leader of the log's end wrote it
        (4, 50, None, True, True),
        (None, 50, None, True, True),
        (4, 100, KafkaError._PARTITION_EOF, True, True),
        (4, 50, KafkaError._AUTO_OFFSET_RESET, True, False),  # librdkafka's word for a log that was truncated
        (4, 50, KafkaError._TRANSPORT, True, False),  # nobody confirms it
        (4, 101, None, False, False),  # past the high watermark
        (4, 10, None, False, True),  # before the log's start
    ],
)
def test_still_holds(epoch: int | None, end_offset: int, probe: int | None, asked: bool, holds: bool) -> None:
    log: Any = Log(epoch, probe)
    cluster = cluster_with(log, timeout_ms=100 if probe == KafkaError._TRANSPORT else 60_000)
    cluster._admin = cluster._consumers[LEVEL, "prober"] = log
    assert cluster.still_holds(PARTITION, 3, end_offset) is holds
    found = [(place.offset, place.leader_epoch) for place in log.assigned]
    assert found == ([(end_offset, 3)] if asked else [])
    cluster.close()


def test_a_refusal_to_confirm_is_raised() -> None:
    log: Any = Log(4, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    cluster = cluster_with(log)
    cluster._admin = cluster._consumers[LEVEL, "prober"] = log
    with pytest.raises(KafkaException):
        cluster.still_holds(PARTITION, 3, 50)


class Fenced(Log):
    """A partition with a new leader, of which the client hears when it asks for the topic's metadata."""

    is_known = False

    def list_offsets(self, wanted: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[object]]:
        future: Future[object] = Future()
        if self.is_known:
            future.set_result(SimpleNamespace(offset=7, leader_epoch=self.epoch))
        else:
            future.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        return dict.fromkeys(wanted, future)

    def list_topics(self, topic: str, timeout: float) -> None:
        assert topic == "t"
        assert 0 < timeout <= 60
        self.is_known = True


def test_after_an_answer_of_another_leader_epoch_the_client_asks_for_the_leader() -> None:
    """librdkafka's AdminClient does not: it would have the same answer until its cache is old."""
    log: Any = Fenced(4, None)
    cluster = cluster_with(log, timeout_ms=60_000)
    cluster._admin = log
    with pytest.raises(KafkaException, match="FENCED"):
        cluster.ends("t", [0, 1])
    assert cluster.answered_s == 0, "an error is no answer: brokers that are away may give errors for long"
    assert cluster.ends("t", [0, 1]) == {0: (7, 7, 4), 1: (7, 7, 4)}
    assert cluster.answered_s > 0
    cluster.close()


class Hung(Log):
    """A partition whose leader hangs after its first answer. The client stays with it, also when it looks it up."""

    is_hung = False

    def list_offsets(self, wanted: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Future[object]]:
        future: Future[object] = Future()
        future.set_result(SimpleNamespace(offset=-1001 if self.is_hung else 7, leader_epoch=self.epoch))
        return dict.fromkeys(wanted, future)

    def list_topics(self, topic: str, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_the_ends_are_asked_by_another_client_if_the_leader_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker has become the leader. Else the first client would wait for the old one to its deadline."""
    log: Any = Hung(4, None)
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", lambda _: Log(5, None))
    cluster = Cluster({}, timeout_ms=30_000)
    cluster._admin = log
    assert cluster.ends("t", [0]) == {0: (7, 7, 4)}
    log.is_hung = True
    assert cluster.ends("t", [0]) == {0: (10, 100, 5)}


class Client:
    """A client that notes its credentials."""

    credentials: tuple[str, str] | None = None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.credentials = username, password

    def close(self) -> None:
        pass


def test_new_credentials_reach_existing_and_later_clients() -> None:
    consumer, admin = Client(), Client()
    cluster = cluster_with(consumer)
    cluster._admin = admin  # type: ignore[assignment]
    cluster.set_sasl_credentials("user", "new")
    assert consumer.credentials == admin.credentials == ("user", "new")
    assert cluster.properties == {"sasl.username": "user", "sasl.password": "new"}
    cluster.close()


@pytest.mark.parametrize(
    ("answers", "bounds"),
    [
        ((36, 38), LogBounds(38, 38)),
        ((36, 36), LogBounds(36, 36)),
        ((37, 36), LogBounds(36, 37)),
        ((38,), LogBounds(36, 38)),
        ((40,), LogBounds(36, 38)),
        ((OFFSET_END,), LogBounds(36, 38)),
    ],
    ids=["deleted past the end", "no end yet", "an end that went back", "in order", "it has moved on", "no answer"],
)
def test_an_end_may_lie_before_the_start(answers: tuple[int, ...], bounds: LogBounds) -> None:
    """librdkafka gives both by size. If the end is not the larger one, the log start is asked for alone."""
    wanted: list[int] = []

    class Noting(Answers):
        def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            wanted.append(asked[0].offset)  # the caller uses the object again
            return super().offsets_for_times(asked, timeout)

    consumer = Noting(*(TopicPartition("t", 0, offset) for offset in answers))
    cluster = Cluster({}, timeout_ms=60_000)
    for level in IsolationLevel:
        cluster._consumers[level, "reader"] = cast(Consumer, consumer)
    assert cluster.log_bounds(PARTITION, IsolationLevel.READ_COMMITTED) == bounds
    assert wanted == [OFFSET_END, OFFSET_BEGINNING][: len(answers)]
    assert cluster.log_bounds(PARTITION, IsolationLevel.READ_UNCOMMITTED) == LogBounds(36, 38)
    assert len(wanted) == len(answers), "a high watermark never lies before the start"


def test_a_closed_cluster_makes_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread whose read was given up may come to its question after that."""
    made: list[Answers] = []

    def make(_: dict[str, Any]) -> Answers:
        made.append(Answers())
        return made[-1]

    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", make)
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", make)
    cluster = Cluster({}, timeout_ms=60_000)
    cluster.consumer(LEVEL)
    cluster.close()
    assert [client.is_closed for client in made] == [True]
    for ask in (lambda: cluster.consumer(LEVEL), cluster.catcher, cluster.names):
        with pytest.raises(Cancelled):
            ask()
    assert len(made) == 1


@pytest.mark.parametrize("checks", [False, True])
def test_the_clients_of_a_metadata_topic_connect_at_once(monkeypatch: pytest.MonkeyPatch, checks: bool) -> None:
    """librdkafka connects as soon as a client is made. A cluster that `checks` makes its clients after the contact."""
    made: list[str] = []

    def make(properties: dict[str, Any]) -> Answers:
        made.append("consumer" if "isolation.level" in properties else "admin")
        return Answers()

    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", make)
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", make)
    cluster = Cluster({}, timeout_ms=60_000, checks=checks)
    cluster.connect()
    cluster.connect()
    assert made == ([] if checks else ["admin", "consumer"])
    if not checks:
        cluster.catcher()
        assert len(made) == 2, "it is the client that reads"
    cluster.close()


def test_clients_that_wait_for_tokens_are_made_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `oauth_cb` confluent_kafka makes a client in a second at least."""
    made: list[threading.Thread] = []
    at_once = threading.Barrier(3)

    def make(_: dict[str, Any]) -> Answers:
        made.append(threading.current_thread())
        at_once.wait(60)
        return Answers()

    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", make)
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", make)
    cluster = Cluster({"oauth_cb": print}, timeout_ms=60_000)
    cluster.connect()
    at_once.wait(60)
    assert threading.current_thread() not in made
    for thread in made:
        thread.join(60)
    cluster.catcher()
    assert len(made) == 2, "it is the client that reads"
    cluster.close()


def test_a_client_that_cannot_be_made_fails_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(_: dict[str, Any]) -> Answers:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", make)
    cluster = Cluster({}, timeout_ms=60_000)
    cluster.connect()
    with pytest.raises(KafkaException):
        cluster.names()


def test_a_client_that_got_no_token_is_made_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token may fail once, after hours of a read. librdkafka would ask again too late for confluent_kafka."""
    no_token, wrong = KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._INVALID_ARG
    codes: list[int] = []

    def make(_: dict[str, Any]) -> Answers:
        if codes:
            raise KafkaException(KafkaError(codes.pop(0)))
        return Answers()

    monkeypatch.setattr("remote_fetch.locate.clients.Consumer", make)
    cluster = Cluster({}, timeout_ms=60_000)
    codes += [no_token]
    cluster.consumer(LEVEL)
    for failing in ([no_token, no_token], [wrong]):
        codes += failing
        with pytest.raises(KafkaException):
            cluster.catcher()
        assert codes == []
    cluster.close()


def test_clients_for_one_question_share_a_token() -> None:
    """A consumer that reads the store asks the brokers a question by such a client every half minute."""
    asked: list[str] = []

    def give_token(config: str) -> Any:
        asked.append(config)
        return None if len(asked) == 1 else ("token", time.time() + 3600)

    cluster = Cluster({"oauth_cb": give_token, "sasl.oauthbearer.config": "scope=x"}, timeout_ms=60_000)
    with pytest.raises(TypeError):
        cluster.contact_properties["oauth_cb"]("scope=x")
    tokens = [cluster.contact_properties["oauth_cb"]("scope=x") for _ in range(3)]
    assert [token for token, _ in tokens] == ["token"] * 3
    assert asked == ["scope=x"] * 2
    assert cluster.properties["oauth_cb"] is give_token, "librdkafka keeps a token of its own"


def test_other_clients_get_the_addresses_of_brokers_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python waits for its whole timeout if the address of the configuration that it tries is silent."""

    def node(number: int, host: str | None) -> SimpleNamespace:
        return SimpleNamespace(id=number, host=host, port=9090 + number)

    partitions = [
        SimpleNamespace(id=0, isr=[node(2, "b"), node(1, "a")]),
        SimpleNamespace(id=1, isr=[node(3, "::1"), node(2, "b"), node(4, None)]),
    ]
    found = SimpleNamespace(topic_id=KafkaUuid(1, 2), partitions=partitions, authorized_operations=None)
    monkeypatch.setattr("remote_fetch.locate.clients.AdminClient", lambda _: Described(found))
    cluster = Cluster({"bootstrap.servers": "silent:9092", "client.id": "me"}, timeout_ms=60_000)
    assert cluster.contact_properties == cluster.properties
    cluster.describe("t")
    assert cluster.contact_properties == {"bootstrap.servers": "a:9091,b:9092,[::1]:9093", "client.id": "me"}
    found.partitions = [SimpleNamespace(id=0, isr=[])]
    cluster.describe("t")
    assert cluster.contact_properties["bootstrap.servers"] == "a:9091,b:9092,[::1]:9093", "it names no broker"
    assert cluster.properties["bootstrap.servers"] == "silent:9092"


@pytest.mark.parametrize(
    ("settings", "is_tiered"), [({"remote.storage.enable": "true"}, True), ({"cleanup.policy": "delete"}, False)]
)
def test_a_topic_s_settings_tell_whether_it_is_tiered(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], is_tiered: bool
) -> None:
    """Brokers that refuse DESCRIBE_CONFIGS do not tell it."""
    cluster = Cluster({}, timeout_ms=1000)
    monkeypatch.setattr(cluster, "topic_settings", lambda name: settings)
    assert cluster.is_tiered("t") is is_tiered

    def refuse(name: str) -> dict[str, str]:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(cluster, "topic_settings", refuse)
    assert cluster.is_tiered("t") is None


@pytest.mark.parametrize("given", [{}, {"log_level": 3}])
def test_librdkafka_reports_brokers_that_are_away_only_if_the_user_wants_it(
    given: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """Each client would log up to a hundred lines a second."""
    address = "127.0.0.1:3"  # of this test alone: clients of other tests may still write to stderr
    cluster = Cluster({"bootstrap.servers": address, **given}, timeout_ms=1000)
    with pytest.raises(KafkaException):
        cluster.log_bounds(PARTITION, LEVEL, by_consumer=True)
    said = capfd.readouterr().err
    while given and address not in said:
        time.sleep(0.1)
        said += capfd.readouterr().err
    assert (address in said) is bool(given)
    cluster.close()


def test_clients_report_brokers_that_cannot_be_reached(capfd: pytest.CaptureFixture[str]) -> None:
    """To the reader of the cluster, with the address of each broker. A consumer tells the user's callback too."""
    address = "127.0.0.1:4"  # of this test alone
    heard: list[str] = []
    users: list[KafkaError] = []
    cluster = Cluster({"bootstrap.servers": address, "error_cb": users.append}, timeout_ms=1000)
    cluster.causes.listener = heard.append
    with pytest.raises(KafkaException):
        cluster.metadata()
    cause = f"{address}/bootstrap: Connect to ipv4#{address} failed: Connection refused"
    assert set(heard) == {cause}
    assert not users, "it may raise, and this thread may be of a pool"
    heard.clear()
    consumer = cluster.consumer(LEVEL)
    while len(users) < 2:
        consumer.consume(1, timeout=0.1)
    assert set(heard) == {cause}
    assert address not in capfd.readouterr().err
    cluster.close()


@pytest.mark.parametrize("checks", [False, True])
def test_an_error_of_silence_names_the_brokers_and_causes(*, checks: bool) -> None:
    """librdkafka's own says that it has waited. No other client is made for it, and nothing waits for it."""
    address = "127.0.0.1:5"
    cluster = Cluster({"bootstrap.servers": address}, timeout_ms=1000, checks=checks)
    cluster._is_unchecked = False  # a broker has answered before
    for ask in (cluster.metadata, lambda: cluster.log_bounds(PARTITION, LEVEL, by_consumer=True)):
        with pytest.raises(KafkaException, match=f"{address}/bootstrap: Connect to .* Connection refused"):
            ask()
    cluster.close()


def test_the_client_of_the_first_contact_reports_causes_later() -> None:
    """The user's callback is called until then: the client is polled in threads that it must not end."""
    users: list[KafkaError] = []

    class Contact(Described):
        def __init__(self, properties: Mapping[str, Any]) -> None:
            super().__init__(None)
            self.error_cb: Any = properties["error_cb"]

    refused = KafkaError(KafkaError._TRANSPORT, "b:1/1: Connect failed: refused (after 0ms in state CONNECT)")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(contact, "AdminClient", Contact)
        cluster = Cluster({"error_cb": users.append}, timeout_ms=1000, checks=True)
        cast(Any, cluster.admin()).error_cb(refused)
    assert not users
    with pytest.raises(KafkaException) as raised:
        cluster.causes.explain(KafkaException(KafkaError(KafkaError._TIMED_OUT, "late")))
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert raised.value.args[0].str() == "late: b:1/1: Connect failed: refused"
    cluster.causes.explain(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))  # an answer has its own cause


def test_a_broker_with_two_names_has_one_cause() -> None:
    """A client that brokers have answered names them by their ids, and a new one by what the user gave."""
    cluster = Cluster({}, timeout_ms=1000)
    heard: list[str] = []
    cluster.causes.listener = heard.append
    refused = "{0}: Connect to ipv4#{1} failed: Connection refused (after 0ms in state CONNECT)"
    for name in ("b:3/bootstrap", "ssl://b:2/bootstrap", "b:1/1", "b:1/bootstrap", "b:1/1"):
        address = name.removeprefix("ssl://").split("/")[0]
        cluster.causes.hear(KafkaError(KafkaError._TRANSPORT, refused.format(name, address)))
    with pytest.raises(KafkaException) as raised:
        cluster.causes.explain(KafkaException(KafkaError(KafkaError._TIMED_OUT, "late")))
    causes = raised.value.args[0].str().removeprefix("late: ").split("; ")
    assert [cause.split(": ")[0] for cause in causes] == ["b:1/1", "ssl://b:2/bootstrap", "b:3/bootstrap"]
    assert set(heard) == set(causes)


def test_causes_that_all_differ_take_no_more_memory() -> None:
    """Some brokers put an id of the attempt into their refusals, and a client tries again for days."""
    causes = Cluster({}, timeout_ms=1000).causes
    held_bytes = []
    tracemalloc.start()
    try:
        for first in range(0, 4_000, 2_000):
            for attempt in range(first, first + 2_000):
                refusal = f"b:1/bootstrap: SASL authentication error: [{attempt:036}]: Access denied"
                causes.hear(KafkaError(KafkaError._AUTHENTICATION, refusal))
            held_bytes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held_bytes[1] - held_bytes[0] < 100_000


def test_causes_of_a_former_silence_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers were away, and were back. A later silence has another cause."""
    cluster = Cluster({}, timeout_ms=1000)
    cluster.causes.hear(KafkaError(KafkaError._TRANSPORT, "b:1/1: Connect failed: refused"))
    monkeypatch.setattr(contact, "_LATELY_S", 0.0)
    cluster.causes.explain(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    polled: list[float] = []
    monkeypatch.setattr(Described, "poll", lambda _, timeout: polled.append(timeout))
    cluster._admin = cast(Any, Described(SimpleNamespace(topics={})))
    cluster.names()
    assert polled == [0], "else the client would keep its reports until that silence"

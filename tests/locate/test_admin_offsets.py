"""The ends of partitions by an AdminClient whose answers are written here."""

from __future__ import annotations

import contextlib
import gc
import weakref
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import IsolationLevel as ListedLevel
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from remote_fetch.failures.broker_errors import is_passing
from remote_fetch.kafka_clients import AdminClient
from remote_fetch.locate.admin_offsets import AdminOffsets
from remote_fetch.locate.clients import Clients
from remote_fetch.model import IsolationLevel, LogBounds

WANTED = TopicPartition("t", 3)
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
_SILENCE = -1001
"""The offset that librdkafka gives, without an error, for a broker that did not answer."""
_EARLIEST = type(OffsetSpec.earliest())  # type: ignore[no-untyped-call]


@dataclass
class Admin:
    """Gives the same ends always, or an error, for which it takes a time."""

    start: int = 5
    ends: dict[ListedLevel, int] = field(
        default_factory=lambda: {ListedLevel.READ_UNCOMMITTED: 90, ListedLevel.READ_COMMITTED: 80}
    )
    error: int | None = None
    takes_s: float = 0
    now_s: float = 1000
    requests: int = 0
    looked_up: list[str] = field(default_factory=list)
    answers: int = 0
    silent: bool = False
    time_ms: int = -1
    timeouts: list[float] = field(default_factory=list)

    def list_offsets(
        self, wanted: dict[TopicPartition, object], *, isolation_level: ListedLevel, request_timeout: float
    ) -> dict[TopicPartition, Future[object]]:
        self.requests += 1
        self.timeouts.append(request_timeout)
        if self.error is not None or self.silent:
            self.now_s += min(self.takes_s, request_timeout)
        future: Future[object] = Future()
        if self.error is None:
            (spec,) = {type(one) for one in wanted.values()}
            offset = self.start if spec is _EARLIEST else _SILENCE if self.silent else self.ends[isolation_level]
            future.set_result(SimpleNamespace(offset=offset, leader_epoch=7, timestamp=self.time_ms))
        else:
            future.set_exception(KafkaException(KafkaError(self.error)))
        return dict.fromkeys(wanted, future)

    def list_topics(self, topic: str, timeout: float) -> None:
        self.looked_up.append(topic)

    def answered(self) -> None:
        self.answers += 1

    @property
    def offsets(self) -> AdminOffsets:
        return AdminOffsets(cast(Clients, self), timeout_s=30, clock=lambda: self.now_s)

    def admin(self) -> Admin:
        return self

    def ends_of(self, numbers: set[int]) -> dict[int, tuple[int, int, int]]:
        return self.offsets.ends(cast(AdminClient, self), "t", numbers, 3)


def test_the_end_is_that_of_the_isolation_level() -> None:
    admin = Admin()
    assert admin.offsets.bounds(WANTED, UNCOMMITTED, 9) == LogBounds(5, 90)
    assert admin.offsets.bounds(WANTED, COMMITTED, 9) == LogBounds(5, 80)
    assert admin.answers == 2
    admin.start = 85
    assert admin.offsets.bounds(WANTED, COMMITTED, 9) == LogBounds(85, 85), "DeleteRecords passed the open transaction"


def test_without_an_answer_nothing_is_asked_for_a_while() -> None:
    admin = Admin(error=KafkaError._TIMED_OUT, takes_s=5)
    offsets = admin.offsets
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) is None
    asked, admin.error = admin.requests, None
    assert admin.now_s <= 1002.1, "both requests wait at once, for a second"
    admin.now_s += 9
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) is None
    assert admin.requests == asked
    admin.now_s += 2
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) == LogBounds(5, 90)


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_refusal_is_no_reason_to_rest(code: int) -> None:
    admin = Admin(error=code)
    offsets = admin.offsets
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) is None
    assert admin.looked_up == (["t"] if code == KafkaError.NOT_LEADER_FOR_PARTITION else [])
    admin.error = None
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) == LogBounds(5, 90)


def test_no_offset_is_no_answer() -> None:
    assert Admin(start=-1).offsets.bounds(WANTED, UNCOMMITTED, 9) is None


def test_an_end_that_no_broker_gave_makes_no_log_empty() -> None:
    """The broker answered the first question and not the second."""
    admin = Admin(silent=True)
    offsets = admin.offsets
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) is None
    assert (admin.answers, admin.looked_up) == (0, ["t"])
    asked, admin.silent = admin.requests, False
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) is None
    assert admin.requests == asked, "it rests, although librdkafka gave its answer at once"
    admin.now_s += 11
    assert offsets.bounds(WANTED, UNCOMMITTED, 9) == LogBounds(5, 90)


def test_ends_that_no_broker_gave_are_an_error_that_passes() -> None:
    admin: Any = Admin(silent=True, takes_s=30)
    with pytest.raises(KafkaException, match="no answer about the offsets of t-2") as caught:
        admin.ends_of({2})
    assert is_passing(caught.value)
    assert admin.offsets.latest_epoch(WANTED) is None
    assert admin.answers == 0


def test_partitions_whose_leader_librdkafka_does_not_know_are_looked_up() -> None:
    admin: Any = Admin(error=KafkaError._NOENT)
    with pytest.raises(KafkaException) as caught:
        admin.ends_of({2})
    assert is_passing(caught.value)
    assert admin.looked_up == ["t"]


def test_ends_and_epochs() -> None:
    admin: Any = Admin()
    assert admin.ends_of({4, 2}) == {2: (5, 90, 7), 4: (5, 90, 7)}
    assert admin.offsets.latest_epoch(WANTED) == 7
    assert admin.offsets.latest_time_ms(WANTED) is None
    admin.time_ms = 1234
    assert admin.offsets.latest_time_ms(WANTED) == 1234
    assert admin.timeouts[-1] == 3, "without an answer the caller has other questions"
    admin.error = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert admin.offsets.latest_epoch(WANTED) is None
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        admin.ends_of({2})


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._NOENT, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_an_error_does_not_keep_the_client(code: int) -> None:
    """librdkafka aborts the process if Python's collector ends a client in a thread of that client."""
    admin = Admin(error=code)
    kept = weakref.ref(admin)
    gc.disable()
    try:
        with contextlib.suppress(KafkaException):
            admin.ends_of({2, 3})
        del admin
        assert kept() is None
    finally:
        gc.enable()

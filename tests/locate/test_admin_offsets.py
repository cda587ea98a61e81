"""The ends of partitions by an AdminClient whose answers are written here."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import IsolationLevel as ListedLevel
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from remote_fetch.locate.admin_offsets import AdminOffsets
from remote_fetch.model import IsolationLevel, LogBounds

WANTED = TopicPartition("t", 3)
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
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

    def list_offsets(
        self, wanted: dict[TopicPartition, object], *, isolation_level: ListedLevel, request_timeout: float
    ) -> dict[TopicPartition, Future[object]]:
        self.requests += 1
        future: Future[object] = Future()
        if self.error is None:
            (spec,) = {type(one) for one in wanted.values()}
            offset = self.start if spec is _EARLIEST else self.ends[isolation_level]
            future.set_result(SimpleNamespace(offset=offset, leader_epoch=7))
        else:
            self.now_s += min(self.takes_s, request_timeout)
            future.set_exception(KafkaException(KafkaError(self.error)))
        return dict.fromkeys(wanted, future)

    def list_topics(self, topic: str, timeout: float) -> None:
        self.looked_up.append(topic)

    def answered(self) -> None:
        self.answers += 1

    @property
    def offsets(self) -> AdminOffsets:
        return AdminOffsets(
            lambda: cast(AdminClient, self), timeout_s=30, answered=self.answered, clock=lambda: self.now_s
        )


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


def test_ends_and_epochs() -> None:
    admin: Any = Admin()
    assert admin.offsets.ends("t", {4, 2}) == {2: (5, 90, 7), 4: (5, 90, 7)}
    assert admin.offsets.latest_epoch(WANTED) == 7
    admin.error = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert admin.offsets.latest_epoch(WANTED) is None
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        admin.offsets.ends("t", {2})

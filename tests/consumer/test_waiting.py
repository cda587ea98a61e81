"""The notices about partitions that give nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.consumer.offsets import INVALID
from remote_fetch.consumer.states import Mode, PartitionState
from remote_fetch.consumer.waiting import WaitLog
from remote_fetch.session.circuit import Circuit

LOCATING, REMOTE = PartitionState(Mode.LOCATING, 5), PartitionState(Mode.REMOTE, 5)


class Notices:
    """One partition, and the notices about it."""

    def __init__(self, state: PartitionState = LOCATING, log_end: int = 10) -> None:
        self.partition = AssignedPartition(TopicPartition("t", 0, 5), state, Circuit())
        self._texts: list[str] = []
        self.has_given = False
        handover: Any = SimpleNamespace(
            position=lambda partition: 501 if self.has_given else INVALID, log_end=lambda partition: log_end
        )
        self._log = WaitLog(
            lambda partition, text: self._texts.append(f"{partition.topic}-{partition.number} {text}"), handover
        )

    def at(self, *times_s: float) -> list[str]:
        """The notices of these moments."""
        for now_s in times_s:
            self._log.update([self.partition], now_s)
        texts, self._texts = self._texts, []
        return texts


def test_a_locating_partition_is_noticed_after_five_seconds_and_then_less_often() -> None:
    notices = Notices()
    awaited = "for the brokers to tell, or the store to give, what lies at its offset"
    assert notices.at(100, 103, 104) == []
    assert notices.at(105) == [f"t-0 has waited 5 s {awaited}"]
    assert notices.at(106, 109) == []
    assert notices.at(*range(110, 140)) == [f"t-0 has waited 10 s {awaited}", f"t-0 has waited 20 s {awaited}"]
    notices.partition.enter((REMOTE, ()))
    assert notices.at(141) == ["t-0 goes on after 41 s"]
    assert notices.at(142, 150) == []


def test_a_hand_over_that_brings_nothing_is_noticed() -> None:
    notices = Notices(PartitionState(Mode.BROKER, 500, handed_over_at_s=99), log_end=14_754)
    assert notices.at(100, 106) == ["t-0 has waited 6 s for its broker to give offsets from 500 on"]
    notices.has_given = True
    assert notices.at(*range(107, 130)) == []


def test_a_partition_that_does_not_wait_is_not_noticed() -> None:
    for state in (
        PartitionState(Mode.LOCATING, 5, is_paused=True),
        REMOTE,
        PartitionState(Mode.BROKER, 10, handed_over_at_s=99),  # at the end of its log
        PartitionState(Mode.BROKER, 5),  # the hand-over has brought something
    ):
        assert Notices(state).at(100, 200) == []


def test_a_short_wait_is_not_noticed() -> None:
    notices = Notices()
    notices.at(100, 103)
    notices.partition.enter((REMOTE, ()))
    assert notices.at(104, 110) == []
    notices.partition.enter((LOCATING, ()))
    assert notices.at(111, 115) == []

"""What is said of partitions that give nothing."""

from __future__ import annotations

from remote_fetch.consumer.entries import Entry
from remote_fetch.consumer.states import Mode, PartitionState
from remote_fetch.consumer.waiting import Waits
from remote_fetch.read.fallback import Circuit


class Lines:
    """A partition, and the lines about it."""

    def __init__(self) -> None:
        self.entry = Entry("t", 0, 5, Circuit())
        self.said: list[str] = []
        self.gives = False
        self.waits = Waits(
            lambda entry, text: self.said.append(f"{entry.topic}-{entry.number} {text}"), lambda entry: self.gives
        )

    def look(self, *seconds: float) -> list[str]:
        """The lines of these moments."""
        for now_s in seconds:
            self.waits.look([self.entry], now_s)
        said, self.said = self.said, []
        return said


def test_a_partition_that_is_looked_for_is_named_after_five_seconds_then_ever_later() -> None:
    lines = Lines()
    what = "for the brokers to tell, or the store to give, what lies at its offset"
    assert lines.look(100, 103, 104) == []
    assert lines.look(105) == [f"t-0 has waited 5 s {what}"]
    assert lines.look(106, 109) == []
    assert lines.look(*range(110, 140)) == [f"t-0 has waited 10 s {what}", f"t-0 has waited 20 s {what}"]
    lines.entry.state = PartitionState(Mode.REMOTE, 5)
    assert lines.look(141) == ["t-0 goes on after 41 s"]
    assert lines.look(142, 150) == []


def test_a_hand_over_that_brings_nothing_is_named() -> None:
    lines = Lines()
    lines.entry.state = PartitionState(Mode.BROKER, 500)
    lines.entry.handed_over_at_s, lines.entry.end_offset = 99.0, 14_754
    assert lines.look(100, 106) == ["t-0 has waited 6 s for its broker to give offsets from 500 on"]
    lines.gives = True
    assert lines.look(*range(107, 130)) == []


def test_what_does_not_wait_is_not_named() -> None:
    lines = Lines()
    for state, handed_over_at_s, end_offset in (
        (PartitionState(Mode.LOCATING, 5, is_paused=True), None, 10),
        (PartitionState(Mode.REMOTE, 5), None, 10),
        (PartitionState(Mode.BROKER, 10), 99.0, 10),  # at its end
        (PartitionState(Mode.BROKER, 5), None, 10),  # librdkafka has given something
    ):
        lines.entry.state, lines.entry.handed_over_at_s, lines.entry.end_offset = state, handed_over_at_s, end_offset
        assert lines.look(100, 200) == []
        lines = Lines()


def test_a_wait_that_ends_soon_is_not_worth_a_line() -> None:
    lines = Lines()
    lines.look(100, 103)
    lines.entry.state = PartitionState(Mode.REMOTE, 5)
    assert lines.look(104, 110) == []
    lines.entry.state = PartitionState(Mode.LOCATING, 5)
    assert lines.look(111, 115) == []

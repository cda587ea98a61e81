"""The calls of the application on assigned partitions."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from remote_fetch.consumer.assigned import AssignedPartition
from remote_fetch.consumer.due_work import DueWork
from remote_fetch.consumer.feed import Ending
from remote_fetch.consumer.offsets import BEGINNING, END, INVALID, STORED, TAIL
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.plan.ranges import Reason
from tests.consumer.fakes import Bench, error_of, live

# ------------------------------------------------------------------------------------------------ where they begin


def test_librdkafka_fetches_only_partitions_that_the_store_cannot_have() -> None:
    bench = Bench({0: 7, 1: END})
    assert ("pause", 0) in bench.librdkafka.calls
    assert ("resume", 1) in bench.librdkafka.calls
    assert (bench.mode(0), bench.mode(1)) == ("locating", "broker")
    assert [feed.offset for feed in bench.workers.feeds] == [7]


@pytest.mark.parametrize(
    ("reset", "committed", "mode", "offset"),
    [
        (ResetPolicy.EARLIEST, 7, "locating", 7),
        (ResetPolicy.EARLIEST, INVALID, "locating", BEGINNING),
        (ResetPolicy.LATEST, INVALID, "broker", END),
        (ResetPolicy.ERROR, INVALID, "broker", STORED),
    ],
)
def test_a_partition_begins_at_the_committed_offset(reset: ResetPolicy, committed: int, mode: str, offset: int) -> None:
    bench = Bench({0: STORED, 1: 5}, reset=reset)
    assert [partition.partition for partition in bench.group.requested] == [0]
    bench.run_due_work()
    assert (bench.mode(0), len(bench.workers.feeds)) == ("locating", 1), "it waits"
    bench.group.answer(committed)
    bench.run_due_work()
    assert (bench.mode(0), bench.partition(0).state.offset) == (mode, offset)


@pytest.mark.parametrize("is_paused", [False, True])
def test_without_a_committed_offset_a_partition_begins_where_the_log_ended_when_the_group_answered(
    is_paused: bool,
) -> None:
    """The application may poll much later, and records may be written before that."""
    bench = Bench({0: STORED}, reset=ResetPolicy.LATEST)
    if is_paused:
        bench.partitions.pause([bench.partition(0)])
    bench.group.answer(70, are_ends=True)
    bench.librdkafka.calls_since()
    bench.run_due_work()
    if is_paused:
        assert ("resume", 0) not in bench.librdkafka.calls_since()
        bench.partitions.resume([bench.partition(0)])
    assert bench.librdkafka.calls_since() == [("seek", 0, 70), ("resume", 0), ("seek", 0, 70)]
    assert bench.workers.feeds == [], "the tier cannot have the end"


def test_a_reset_keeps_librdkafkas_position_to_be_shown_and_committed() -> None:
    bench = Bench({0: END}, reset=ResetPolicy.LATEST)
    bench.librdkafka.positions[0] = 29
    bench.librdkafka.stopped.add(0)
    bench.partitions.reset(bench.partition(0), 29)
    assert bench.librdkafka.positions == {0: 29}
    bench.librdkafka.positions.clear()
    bench.partitions.positions.store()
    assert (bench.partition(0).position.shown.offset, bench.librdkafka.stored) == (29, {0: 29})


def test_the_end_is_looked_up_at_once_in_a_paused_partition() -> None:
    bench = Bench({0: 5, 1: END})
    bench.partitions.pause(bench.partitions.assigned.values())
    for number in (0, 1):
        bench.librdkafka.calls_since()
        bench.partitions.seek(bench.partition(number), END)
        assert bench.librdkafka.calls_since() == [("seek", number, END)]
        bench.partitions.resume([bench.partition(number)])
        assert bench.librdkafka.calls_since() == [("resume", number)]


def test_a_paused_partition_that_librdkafka_has_stopped_stays_paused_when_the_end_is_looked_up() -> None:
    bench = Bench({0: END})
    bench.partitions.pause([bench.partition(0)])
    bench.librdkafka.stopped.add(0)
    bench.librdkafka.calls_since()
    bench.partitions.seek(bench.partition(0), END)
    calls = bench.librdkafka.calls_since()
    assert calls == [("incremental_unassign", [0]), ("incremental_assign", [(0, END)])]


@pytest.mark.parametrize("is_cooperative", [True, False])
def test_without_an_answer_of_the_group_librdkafka_is_assigned_the_stored_offset(is_cooperative: bool) -> None:
    bench = Bench(is_cooperative=is_cooperative)
    bench.librdkafka.rebalances_eagerly = not is_cooperative
    bench.assign({0: STORED, 1: STORED, 2: 5})
    bench.librdkafka.calls_since()
    bench.group.answer()
    bench.run_due_work()
    last = bench.librdkafka.calls_since()[-1]
    if is_cooperative:
        assert last == ("incremental_assign", [(0, STORED), (1, STORED)])
    else:
        assert last == ("assign", [(0, STORED), (1, STORED), (2, 0)])


@pytest.mark.parametrize("consumes", [False, True])
def test_the_group_is_asked_again_if_librdkafka_asks_no_more(*, consumes: bool) -> None:
    """After a coordinator has moved, librdkafka (2.16) only tells so, and would never read the partitions."""
    text = 'Failed to fetch committed offsets for 0 partition(s) in group "g": Broker: Not coordinator'
    bench = Bench({0: STORED, 1: STORED, 2: STORED, 3: END})
    bench.group.answer()
    bench.run_due_work()
    bench.librdkafka.positions[1] = 9
    bench.partitions.seek(bench.partition(2), END)
    bench.partitions.pause([bench.partition(0)])
    bench.librdkafka.live.append(error_of(-1, KafkaError.NOT_COORDINATOR, text=text))
    (told,) = bench.merge.consume(1, 0) if consumes else [bench.merge.poll(0)]
    assert told is not None
    assert told.error() is not None, "as with a plain consumer"
    assert [partition.partition for partition in bench.group.requested] == [0]
    bench.group.answer(7)
    bench.run_due_work()
    assert bench.feed(0).first_offset == 7
    assert bench.partition(0).state.is_paused


def test_the_group_is_asked_before_a_partition_is_reset_for_want_of_a_committed_offset() -> None:
    """librdkafka (2.16) may take an offset for none if it waits for an open transaction. A plain group doubles then."""
    bench = Bench({0: STORED})
    for _ in range(3):
        bench.group.answer()
        bench.run_due_work()
        bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
        bench.librdkafka.calls_since()
        assert bench.merge.poll(0) is None
        assert bench.librdkafka.calls_since() == [("pause", 0)]
    bench.group.answer(7)
    bench.run_due_work()
    assert bench.feed(0).first_offset == 7


def test_a_group_that_never_answers_does_not_hold_a_reset_for_ever() -> None:
    bench = Bench({0: STORED})
    for _ in range(4):
        assert bench.partition(0).feed is None
        bench.group.answer()
        bench.run_due_work()
        bench.librdkafka.live.append(error_of(0, KafkaError._AUTO_OFFSET_RESET))
        assert bench.merge.poll(0) is None
    assert bench.feed(0).first_offset == BEGINNING


@pytest.mark.parametrize("commits", [False, True])
def test_librdkafka_commits_what_is_dropped_if_automatic_commits_are_on(*, commits: bool) -> None:
    bench = Bench({0: STORED}, commits=commits)
    bench.partitions.drop(None)
    assert bench.partitions.is_committing is commits


def test_a_paused_partition_without_a_committed_offset_is_assigned_at_once() -> None:
    """librdkafka gives its error for it during the pause. A resumption assigns nothing: the error would come again."""
    bench = Bench({0: STORED, 1: STORED}, reset=ResetPolicy.ERROR)
    bench.partitions.pause(bench.partitions.assigned.values())
    bench.librdkafka.calls_since()
    bench.group.answer(INVALID, INVALID)
    bench.run_due_work()
    calls = bench.librdkafka.calls_since()
    assert calls == [("incremental_unassign", [0, 1]), ("incremental_assign", [(0, STORED), (1, STORED)])]
    bench.partitions.resume(bench.partitions.assigned.values())
    assert bench.librdkafka.calls_since() == [("resume", 0), ("resume", 1)]


def test_a_late_answer_does_not_move_a_partition_that_was_sought_or_assigned_again() -> None:
    bench = Bench({0: STORED, 1: STORED})
    bench.partitions.seek(bench.partition(0), 3)
    bench.group.answer(7, 8)
    bench.assign({1: STORED}, replaces=False)
    bench.run_due_work()
    assert [feed.offset for feed in bench.workers.feeds] == [3]
    bench.group.answer(9)
    bench.run_due_work()
    assert [feed.offset for feed in bench.workers.feeds] == [3, 9]


def test_the_group_is_asked_although_the_assignment_drops_other_partitions() -> None:
    """librdkafka commits for these only. Else the partition would first be read from the broker, for seconds."""
    bench = Bench({0: END})
    bench.assign({1: STORED})
    assert [partition.partition for partition in bench.group.requested] == [1]


def test_a_leader_epoch_that_the_application_names_goes_with_its_offset() -> None:
    """To the feed, and to librdkafka if the feed brings nothing. A logical offset has none."""
    bench = Bench()
    named = [TopicPartition("t", number, offset, leader_epoch=3) for number, offset in ((0, 7), (1, BEGINNING))]
    bench.librdkafka.assigned = named
    bench.begin(named)
    assert [feed._leader_epoch for feed in bench.workers.feeds] == [3, None]
    bench.partitions.seek(bench.partition(0), 9, 4)
    feed = bench.workers.feeds[-1]
    assert feed._leader_epoch == 4
    feed.ending = Ending(9, Reason.NOT_TIERED, leader_epoch=feed._leader_epoch)
    bench.librdkafka.calls_since()
    bench.run_due_work()
    assert ("seek", 0, 9, 4) in bench.librdkafka.calls_since()


def test_new_partitions_go_to_the_broker_while_the_circuit_is_open() -> None:
    bench = Bench()
    bench.context.failed("throttled")
    bench.assign({0: 5})
    assert bench.workers.feeds == []
    assert bench.partition(0).state.reason == "throttled"


def test_dropping_partitions_drops_their_feeds() -> None:
    bench = Bench({0: 5, 1: 5})
    bench.give(0, [5])
    feeds = list(bench.workers.feeds)
    bench.partitions.drop([TopicPartition("t", 0), TopicPartition("t", 9)])
    assert list(bench.partitions.assigned) == [("t", 1)]
    assert bench.workers.dropped == feeds[:1]
    bench.librdkafka.live.append(live(1, 3))
    assert [message.value() for message in bench.merge.consume(5, 0)] == [b"live3"]
    bench.partitions.drop(None)
    assert bench.workers.dropped == feeds


# ---------------------------------------------------------------------------------------------------------- pauses


def test_pauses_outlast_assignments_and_delay_a_hand_over() -> None:
    bench = Bench({0: 5, 1: END})
    bench.partitions.pause(bench.partitions.assigned.values())
    bench.librdkafka.calls_since()
    bench.assign({0: 5, 1: END})
    assert ("resume", 1) not in bench.librdkafka.calls_since()
    bench.end(0, 5)
    bench.run_due_work()
    assert ("seek", 0, 5) not in bench.librdkafka.calls_since()
    bench.partitions.resume(bench.partitions.assigned.values())
    assert bench.librdkafka.calls_since() == [("seek", 0, 5), ("resume", 0), ("seek", 0, 5), ("resume", 1)]


@pytest.mark.parametrize("paused_s", [60, 61])
def test_after_a_long_pause_the_store_is_read_again(paused_s: int) -> None:
    """The records that have waited may be deleted by now, or may be of a topic that was made again."""
    bench = Bench({0: 5, 1: END})
    feed = bench.feed(0)
    bench.give(0, range(5, 9))
    message = bench.merge.poll(0)
    assert message is not None
    assert message.offset() == 5
    bench.merge.flush_position()
    both = list(bench.partitions.assigned.values())
    bench.partitions.pause(both)
    bench.clock.now_s += 30
    bench.partitions.pause(both)
    bench.clock.now_s += paused_s - 30
    bench.partitions.resume(both)
    bench.partitions.resume(both)
    is_same = paused_s == 60
    assert (bench.feed(0) is feed, bench.feed(0).offset, bench.partition(0).records.are_ready) == (
        (True, 5, True) if is_same else (False, 6, False)
    )
    assert bench.mode(1) == "broker"


def test_a_long_pause_does_not_count_back_from_the_end_again() -> None:
    """The records that were written during the pause would be skipped."""
    bench = Bench({0: TAIL - 10})
    feed = bench.feed(0)
    feed.first_offset = feed.offset = 90
    bench.partitions.pause(bench.partitions.assigned.values())
    bench.clock.now_s += 61
    bench.partitions.resume(bench.partitions.assigned.values())
    assert bench.feed(0) is not feed
    assert bench.feed(0).first_offset == 90


def test_a_pause_of_an_unassigned_partition_counts_if_librdkafka_knows_it() -> None:
    bench = Bench()
    bench.librdkafka.unknown = {1}
    bench.partitions.pause_untracked([TopicPartition("t", 0), TopicPartition("t", 1)])
    bench.assign({0: 5, 1: 5})
    assert (bench.partition(0).state.is_paused, bench.partition(1).state.is_paused) == (True, False)
    bench.partitions.drop(None)
    bench.partitions.resume_untracked([TopicPartition("t", 0)])
    bench.assign({0: 5})
    assert not bench.partition(0).state.is_paused


# ------------------------------------------------------------------------------------------------ when work is due


def looks_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[AssignedPartition]:
    """The partitions that were looked at for due work, from now on."""
    looked: list[AssignedPartition] = []
    monkeypatch.setattr(DueWork, "run", lambda _, partition, now_s: looked.append(partition))
    return looked


def test_polls_for_records_of_librdkafka_look_at_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that has caught up may have a thousand partitions, and is polled for each record."""
    bench = Bench(dict.fromkeys(range(50), END))
    bench.run_due_work()
    looked = looks_at(bench, monkeypatch)
    bench.librdkafka.live.extend(live(offset % 50, offset) for offset in range(100))
    assert [message and message.offset() for message in (bench.merge.poll(1) for _ in range(100))] == list(range(100))
    assert looked == []
    assert bench.partitions.reading == []


def test_all_partitions_are_looked_at_every_hundredth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench({0: END, 1: 5})
    bench.run_due_work()
    looked = looks_at(bench, monkeypatch)
    bench.run_due_work(after_s=0.009)
    assert looked == []
    bench.run_due_work(after_s=0.002)
    assert looked == list(bench.partitions.assigned.values())


@pytest.mark.parametrize("what", ["reset", "truncate", "assign"])
def test_the_topic_is_looked_up_again_where_the_log_may_be_another_topics(what: str) -> None:
    """The tier may still have segments of the deleted topic, and its id was confirmed only a moment ago."""
    bench = Bench({0: END})
    partition = bench.partition(0)
    bench.librdkafka.stopped.add(0)
    answers = [{TopicIdPartition(Uuid(name * 16), "t", 0)} for name in (b"o", b"n")]
    bench.session.locator = SimpleNamespace(partitions=lambda *_: answers.pop(0))
    bench.context.partition("t", 0)
    changes: dict[str, Callable[[], object]] = {
        "reset": lambda: bench.partitions.reset(partition, -1001),
        "truncate": lambda: bench.partitions.reset(partition, -1001, 20),
        "assign": lambda: bench.assign({0: 5}),
    }
    changes[what]()
    assert bench.context.partition("t", 0).topic_id == Uuid(b"n" * 16)


@pytest.mark.parametrize("what", ["news", "seek", "reset", "pause", "resume", "drop", "assign"])
def test_all_partitions_are_looked_at_after_a_change(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    bench = Bench({0: END, 1: 5})
    bench.run_due_work()
    bench.librdkafka.stopped.add(0)
    partition = bench.partition(0)
    changes: dict[str, Callable[[], object]] = {
        "news": bench.workers.notify,
        "seek": lambda: bench.partitions.seek(partition, 3),
        "reset": lambda: bench.partitions.reset(partition, -1001),
        "pause": lambda: bench.partitions.pause([partition]),
        "resume": lambda: bench.partitions.resume([partition]),
        "drop": lambda: bench.partitions.drop([partition.topic_partition()]),
        "assign": lambda: bench.assign({2: 5}, replaces=False),
    }
    changes[what]()
    looked = looks_at(bench, monkeypatch)
    bench.run_due_work()
    assert looked == list(bench.partitions.assigned.values())


def test_a_partition_is_handed_over_with_the_poll_after_the_last_record_of_its_feed() -> None:
    bench = Bench({0: 5})
    bench.give(0, [5, 6])
    bench.end(0, 7)
    assert [message and message.offset() for message in (bench.merge.poll(0), bench.merge.poll(0))] == [5, 6]
    assert bench.mode(0) == "remote"
    assert bench.merge.poll(0) is None
    assert bench.mode(0) == "broker"


def test_an_error_of_librdkafka_keeps_no_record_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application may catch the error, and poll again at once."""
    bench = Bench({0: 5})
    bench.give(0, [5])
    bench.partitions.pause([bench.partition(0)])
    assert bench.merge.poll(0) is None
    bench.partitions.resume([bench.partition(0)])

    def fail(_: DueWork, partition: AssignedPartition, now_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FAIL))

    with monkeypatch.context() as patch:
        patch.setattr(DueWork, "run", fail)
        with pytest.raises(KafkaException):
            bench.merge.poll(0)
    message = bench.merge.poll(0)
    assert message is not None
    assert message.offset() == 5

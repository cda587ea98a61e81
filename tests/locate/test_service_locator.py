"""Timelines from a service: pages, failures, refusals, and what is not believed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import CorruptSegment, StorageUnavailable, Unlocatable
from remote_fetch.locate import service_locator
from remote_fetch.locate.cluster import Cluster, Topic
from remote_fetch.locate.lineage import Lineage
from remote_fetch.locate.service_client import ServiceClient
from remote_fetch.locate.service_locator import ServiceLocator
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tests.at_once import at_once
from tests.cases import each_of
from tests.formats.test_service_answers import PARTITION, SEGMENT
from tests.locate.scripted_service import Reply, ScriptedService, page, scripted_service, segment_json
from tests.locate.test_service_client import PATH, client_of


def segment(number: int) -> RemoteLogSegmentMetadata:
    """The segment of offsets [10 * number, 10 * number + 9]."""
    segment_id = RemoteLogSegmentId(PARTITION, Uuid(number.to_bytes(16, "big")))
    return replace(SEGMENT, segment_id=segment_id, start_offset=10 * number, end_offset=10 * number + 9)


@dataclass
class Brokers:
    """A cluster with the one topic."""

    may_read: bool = True
    topic: Topic = field(default_factory=lambda: Topic("orders", PARTITION.topic_id, (2, 3), may_read=True))

    def describe(self, name: str) -> Topic:
        return replace(self.topic, may_read=self.may_read)

    def names(self) -> tuple[str, ...]:
        return ("orders",)


@dataclass
class Located:
    """A locator over a scripted service. `said` are its reports, with None for a recovery. `now_s` is its clock."""

    service: ScriptedService
    brokers: Brokers = field(default_factory=Brokers)
    said: list[str | None] = field(default_factory=list)
    now_s: float = 0.0

    def open(self, client: ServiceClient) -> ServiceLocator:
        return ServiceLocator(
            cast(Cluster, self.brokers),
            client,
            say=self.said.append,
            recovered=lambda: self.said.append(None),
            clock=lambda: self.now_s,
        )


@contextmanager
def located(answer: Callable[[str], Reply], timeout_ms: int = 5000) -> Iterator[tuple[Located, ServiceLocator]]:
    with scripted_service(answer) as service:
        known = Located(service)
        client = client_of(service.url, timeout_ms)
        try:
            yield known, known.open(client)
        finally:
            client.close()


def of_pages(pages: dict[str, bytes]) -> Callable[[str], Reply]:
    return lambda path: Reply(body=pages[path.removeprefix(PATH)])


def test_partitions_are_those_of_the_brokers() -> None:
    both = (TopicIdPartition(PARTITION.topic_id, "orders", 2), PARTITION)
    with located(lambda path: Reply(500)) as (known, locator):
        assert locator.partitions("orders") == locator.partitions("orders", [3]) == locator.partitions(None) == both
        assert known.service.asked == []


def test_a_timeline_of_pages() -> None:
    segments = [segment(number) for number in range(6)]
    pages = {
        "": page(PARTITION, segments[:3], 20, orphan_updates=1),
        "?from=20": page(PARTITION, segments[2:4], 40, orphan_updates=1, malformed_records=2),
        "?from=40": page(PARTITION, segments[4:]),
    }
    with located(of_pages(pages)) as (known, locator):
        timeline = locator.timeline(PARTITION)
        assert timeline.segments == tuple(segments)
        assert (timeline.orphan_updates, timeline.malformed_records) == (1, 2)
        assert locator.timeline(PARTITION) is timeline
        assert len(known.service.asked) == 3
        pages[""] = page(PARTITION, segments[:1])
        assert locator.refresh(PARTITION).segments == (segments[0],)
        assert locator.timeline(PARTITION).segments == (segments[0],)
        assert locator.recheck(PARTITION, 5).segments == (segments[0],)
    assert known.said == []


def test_the_service_tells_which_of_two_uploads_is_read() -> None:
    """The later leader's, and of one leader the one that was finished last. The times of the events do not tell it."""
    first, second = segment(0), replace(segment(1), start_offset=0, end_offset=9, event_timestamp_ms=0)
    assert second.event_timestamp_ms < first.event_timestamp_ms
    ranks = ({"finish_order": 9, "upload_epoch": 5}, {"finish_order": 3, "upload_epoch": 6})
    entries = [segment_json(one, **rank) for one, rank in zip((first, second), ranks, strict=True)]
    with located(of_pages({"": page(PARTITION, entries)})) as (_, locator):
        assert locator.timeline(PARTITION).covering(5, Lineage.unknown()) == second
    entries = [segment_json(first, finish_order=3), segment_json(second, finish_order=9)]
    with located(of_pages({"": page(PARTITION, entries)})) as (_, locator):
        assert locator.timeline(PARTITION).covering(5, Lineage.unknown()) == second


def test_a_timeline_that_has_not_changed() -> None:
    replies = [
        Reply(body=page(PARTITION, [segment(0)], 10), headers={"ETag": '"1"'}),
        Reply(body=page(PARTITION, [segment(1)]), headers={"ETag": '"1"'}),
        Reply(304, b""),
        Reply(body=page(PARTITION, [segment(1)])),
        Reply(body=page(PARTITION, [])),
    ]
    with located(lambda path: replies.pop(0)) as (known, locator):
        both = locator.timeline(PARTITION)
        assert locator.refresh(PARTITION) is both
        assert locator.refresh(PARTITION).segments == (segment(1),)
        assert locator.refresh(PARTITION).segments == ()
    tags = [headers.get("if-none-match") for _, headers in known.service.asked]
    assert tags == [None, None, '"1"', '"1"', None]


@each_of("of_second", [{"ETag": '"2"'}, {}])
def test_pages_of_two_states_have_no_tag(of_second: dict[str, str]) -> None:
    # The second page is of another instance that is behind. The first one's tag would be answered 304 for ever.
    replies = [
        Reply(body=page(PARTITION, [segment(0)], 10), headers={"ETag": '"1"'}),
        Reply(body=page(PARTITION, [segment(1)], 20), headers=of_second),
        Reply(body=page(PARTITION, []), headers={"ETag": '"1"'}),
        Reply(body=page(PARTITION, [segment(number) for number in range(3)]), headers={"ETag": '"1"'}),
    ]
    with located(lambda path: replies.pop(0)) as (known, locator):
        assert len(locator.timeline(PARTITION).segments) == 2
        assert len(locator.refresh(PARTITION).segments) == 3
    assert "if-none-match" not in known.service.asked[-1][1]


def test_a_timeline_that_is_not_asked_for_is_forgotten() -> None:
    """A consumer follows topics that are made and deleted for weeks."""
    other = TopicIdPartition(PARTITION.topic_id, "orders", 2)

    def answer(path: str) -> Reply:
        return Reply(body=page(other, []) if "/partitions/2/" in path else page(PARTITION, [segment(0)]))

    with located(answer) as (known, locator):
        assert locator.timeline(PARTITION).segments
        for _ in range(5):
            assert locator.refresh(other).segments == ()
            assert len(locator._known) == 2
            known.now_s += service_locator._UNASKED_S / 4
        locator.refresh(other)
        assert locator._known.keys() == {other}
        before = len(known.service.asked)
        assert locator.timeline(PARTITION).segments == (segment(0),)
        assert len(known.service.asked) == before + 1


def test_the_later_finish_decides_between_equal_uploads() -> None:
    again = replace(SEGMENT, segment_id=RemoteLogSegmentId(PARTITION, Uuid(bytes(16))))
    for orders in ((1, 2), (2, 1)):
        entries = [segment_json(one, finish_order=order) for one, order in zip((SEGMENT, again), orders, strict=True)]
        with located(of_pages({"": page(PARTITION, entries)})) as (_, locator):
            chosen = locator.timeline(PARTITION).covering(10, Lineage.unknown())
        assert chosen == (SEGMENT, again)[orders.index(2)]


def test_a_service_that_never_comes_to_an_end() -> None:
    def answer(path: str) -> Reply:
        first = int(path.partition("from=")[2] or 0)
        return Reply(body=page(PARTITION, [segment(0)], first + 1))

    with located(answer) as (known, locator), pytest.raises(CorruptSegment, match="without a segment"):
        locator.timeline(PARTITION)
    assert len(known.service.asked) == 2


def test_more_segments_than_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_locator, "_MAX_SEGMENTS", 2)
    pages = {"": page(PARTITION, [segment(number) for number in range(3)])}
    with located(of_pages(pages)) as (_, locator), pytest.raises(CorruptSegment, match="more than 2"):
        locator.timeline(PARTITION)


def test_an_absent_service_is_reported_once_and_asked_again_later() -> None:
    replies = [Reply(401), Reply(401), Reply(body=page(PARTITION, [segment(0)])), Reply(401)]
    with located(lambda path: replies.pop(0)) as (known, locator):
        assert locator.timeline(PARTITION).segments == ()
        assert locator.refresh(PARTITION).segments == ()
        assert len(known.service.asked) == 1
        known.now_s += 11
        assert locator.refresh(PARTITION).segments == ()
        assert len(known.service.asked) == 2
        assert len(known.said) == 1
        assert "does not accept the credentials" in str(known.said[0])
        known.now_s += 11
        assert locator.timeline(PARTITION).segments == (segment(0),)
        assert known.said[1:] == [None]
        assert locator.refresh(PARTITION).segments == (segment(0),), "what it said last is still right"
        assert len(known.said) == 3


@pytest.mark.parametrize("reply", [Reply(503), Reply(429), Reply(400), Reply(302), Reply(drip_s=0.05)])
def test_what_counts_as_an_absent_service(reply: Reply) -> None:
    with located(lambda path: reply, timeout_ms=200) as (known, locator):
        assert locator.timeline(PARTITION).segments == ()
    assert len(known.said) == 1


def test_a_partition_that_the_service_does_not_know() -> None:
    with (
        located(lambda path: Reply(404)) as (known, locator),
        pytest.raises(Unlocatable, match="does not know") as raised,
    ):
        locator.timeline(PARTITION)
    assert (raised.value.topic, raised.value.partition) == ("orders", 3)
    assert known.said == []


def test_an_answer_that_is_wrong_is_an_error_of_its_partition() -> None:
    with located(lambda path: Reply(body=b"{}")) as (known, locator), pytest.raises(CorruptSegment) as raised:
        locator.timeline(PARTITION)
    assert (raised.value.topic, raised.value.partition) == ("orders", 3)
    assert known.said == []


def test_a_refusal_of_the_brokers_is_theirs() -> None:
    replies = [Reply(body=page(PARTITION, [segment(0)])), Reply(403), Reply(403)]
    with located(lambda path: replies.pop(0)) as (known, locator):
        locator.timeline(PARTITION)
        known.brokers.may_read = False
        with pytest.raises(KafkaException) as raised:
            locator.refresh(PARTITION)
        assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(KafkaException):
            locator.timeline(PARTITION)


def test_a_refusal_of_the_service_alone_locates_nothing() -> None:
    with located(lambda path: Reply(403)) as (known, locator), pytest.raises(Unlocatable, match="but they allow it"):
        locator.timeline(PARTITION)
    assert known.said == []


def test_threads_that_fail_at_the_same_moment_report_it_once() -> None:
    said, both, is_said_twice = list[str](), threading.Barrier(2, timeout=60), threading.Event()

    class Silent:
        def segments(self, *_: object, **__: object) -> None:
            both.wait()
            raise StorageUnavailable("no answer")

    def say(why: str) -> None:
        said.append(why)
        if len(said) == 2:
            is_said_twice.set()
        is_said_twice.wait(0.2)

    locator = ServiceLocator(cast(Cluster, Brokers()), cast(ServiceClient, Silent()), say=say)
    at_once([partial(locator.refresh, replace(PARTITION, partition=number)) for number in (2, 3)])
    assert len(said) == 1


def test_a_failure_beside_a_recovery_is_reported() -> None:
    said, failing = list[str | None](), {2, 3}
    again = threading.Thread(target=lambda: locator.refresh(PARTITION))

    class Half:
        def segments(self, partition: TopicIdPartition, **_: object) -> None:
            if partition.partition in failing:
                raise StorageUnavailable("no answer")

    def recovered() -> None:
        said.append(None)
        again.start()
        again.join(0.2)

    clock = count(step=100).__next__
    locator = ServiceLocator(
        cast(Cluster, Brokers()), cast(ServiceClient, Half()), say=said.append, recovered=recovered, clock=clock
    )
    locator.refresh(PARTITION)
    failing.remove(2)
    locator.refresh(replace(PARTITION, partition=2))
    again.join(60)
    assert said == ["no answer", None, "no answer"]

"""How a feed ends, and what is counted of it, where the session has no more to give."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from remote_fetch.consumer.feed import Feed, Source
from remote_fetch.errors import ErrorKind, RemoteFetchError, SegmentNotFound, StorageDenied, Unlocatable
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid
from remote_fetch.observe import Event, Fallback
from remote_fetch.read.refusals import unexpected

PARTITION = TopicIdPartition(Uuid(b"i" * 16), "t", 3)


class Locator:
    """Knows one partition of which nothing is tiered, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def partitions(self, topic: str) -> tuple[TopicIdPartition, ...]:
        return (PARTITION,)

    def refresh(self, partition: TopicIdPartition) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(segments=())


def ended(error: Exception | None = None, unlocated: ErrorKind | None = None) -> tuple[Feed, Source, list[Event]]:
    """A feed from offset 7 on that has come to its end."""
    events: list[Event] = []
    session = SimpleNamespace(
        locator=Locator(error),
        observe=events.append,
        note_unusable=lambda timeline: None,
        guard=None,
        cluster=None,
        unlocated=unlocated,
        surveyor=SimpleNamespace(explain=lambda reason, waits: None),
    )
    source = Source(session, IsolationLevel.READ_COMMITTED, 64 << 20, 64 << 20)  # type: ignore[arg-type]
    feed = Feed(source, "t", 3, 7)
    assert feed.work()
    assert feed.ending is not None
    assert not feed.wants_work
    return feed, source, [event for event in events if isinstance(event, Fallback)]


def caused(error: RemoteFetchError, cause: RemoteFetchError) -> RemoteFetchError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason", "opens"),
    [
        (StorageDenied("no"), "auth", True),
        (caused(Unlocatable("no object", first=7, last=9), SegmentNotFound("404")), "not-found", False),
        (ZeroDivisionError(), "error", False),
    ],
    ids=["denied", "not found", "a bug"],
)
def test_a_failure_is_counted_by_its_reason(error: Exception, reason: str, opens: bool) -> None:
    feed, source, fallbacks = ended(error)
    assert feed.ending is not None
    assert (feed.ending.offset, feed.ending.reason, feed.ending.is_failure) == (7, reason, True)
    assert fallbacks == [Fallback(PARTITION, 7, 7, reason)]
    assert (source.open_circuit() is not None) == opens


def test_nothing_tiered_is_no_failure() -> None:
    feed, _, fallbacks = ended()
    assert feed.ending is not None
    assert (feed.ending.reason, feed.ending.is_failure, fallbacks) == ("not-tiered", False, [])


@pytest.mark.parametrize("unlocated", [ErrorKind.NOT_CONFIGURED, ErrorKind.UNLOCATABLE])
def test_nothing_located_is_counted(unlocated: ErrorKind) -> None:
    feed, _, fallbacks = ended(unlocated=unlocated)
    assert feed.ending is not None
    assert feed.ending.reason == unlocated
    assert fallbacks == [Fallback(PARTITION, 7, 7, unlocated)]


def broken() -> None:
    raise ValueError("numpy.dtype size changed")


def test_what_is_unexpected_is_named_with_its_place_and_what_to_do() -> None:
    with pytest.raises(ValueError, match="numpy") as raised:
        broken()
    said = unexpected(raised.value)
    assert re.match(r"builtins\.ValueError in .*test_feed\.py, line \d+: numpy\.dtype size changed\. ", said)
    assert "a package of this environment is broken" in said
    assert unexpected(MemoryError()).startswith("builtins.MemoryError: ")

"""Parts of the contract suite: the segments that it stores, the calls that it makes, and its look at their outcomes.

Rules of the file:

- The segments are complete, with every index file. They are built alike in each run.
- Segments of different places have different bytes, so that an answer for another segment is noticed.
"""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count, takewhile
from types import MappingProxyType

from remote_fetch.deadline import Deadline
from remote_fetch.errors import RemoteFetchError
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentSizer
from remote_fetch.model import Buffer, IndexType, RemoteLogSegmentId, Uuid
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment, SegmentOptions

__all__ = [
    "WAIT_S", "calls", "contract_segments", "examine", "fetch_log", "often_switching",
    "outcome_of", "stored_segments", "turns",
]  # fmt: skip

WAIT_S = 60.0
"""How long a test waits for threads that should end."""
_STALL_S = 15.0
"""How long it waits for a call whose timeouts are less than a second. The usual timeouts of SDKs are longer."""
_TIMEOUTS: Mapping[str, str] = MappingProxyType(
    {"fetch.remote.connect.timeout.ms": "300", "fetch.remote.read.timeout.ms": "900"}
)
_LEAST_TURNS, _TURNS_S = 10, 0.5
_SWITCH_S = 1e-5
"""How long a thread runs before another one may, so that calls meet in the middle."""
_SHORTEST_SECRET_CHARS = 6
"""Shorter values of options are not looked for: `0` and `true` are in many messages."""


def contract_segments() -> list[BuiltSegment]:
    """Three segments of one partition: one with aborted transactions, two without a transaction index."""
    log = LogBuilder()
    log.append_batch([Record(n, n, b"key", b"value" * 20) for n in range(50)])
    log.begin(7)
    log.append_batch([Record(n, n, b"key", b"value") for n in range(3)], producer_id=7)
    log.abort(7)
    log.roll()
    for _ in range(2):
        for _ in range(20):
            log.append_batch([Record(n, n, b"key", bytes([n]) * 100) for n in range(10)])
        log.roll()
    return log.segments(SegmentOptions(index_interval_bytes=0))


def stored_segments() -> list[BuiltSegment]:
    """All segments that the suite stores: those of `contract_segments`, and similar ones with the same start offset.

    These differ by topic or partition, and one by its upload alone, whose bytes are the same. One topic's name begins
    with that of the other and goes on like a partition.
    """
    built = contract_segments()
    first = built[0].metadata
    other_topic = Uuid(b"of another topic")
    for number, (topic, topic_id, partition) in enumerate(
        (
            ("topic", first.topic_id_partition.topic_id, 12),
            ("topic-1", other_topic, 0),
            ("topic-1", other_topic, 12),
        )
    ):
        log = LogBuilder(topic, topic_id, partition)
        log.append_batch([Record(at, at, b"key", b"%d" % number * 30) for at in range(20 + number)])
        log.begin(8 + number)
        log.append_batch([Record(0, 0, b"key", b"value")], producer_id=8 + number)
        log.abort(8 + number)
        log.roll()
        built += log.segments(SegmentOptions(index_interval_bytes=0))
    again = RemoteLogSegmentId(first.topic_id_partition, Uuid(b"another upload  "))
    return [*built, replace(built[0], metadata=replace(first, segment_id=again))]


def calls(fetcher: RemoteStorageFetcher, segment: BuiltSegment) -> Iterator[Callable[[], object]]:
    """One call of each kind for a segment."""
    yield lambda: fetcher.fetch_log_segment(segment.metadata, 0, 10)
    yield lambda: fetcher.fetch_log_segment(segment.metadata, len(segment.log) + 1)
    for index_type in IndexType:
        yield lambda index_type=index_type: fetcher.fetch_index(segment.metadata, index_type)  # type: ignore[misc]
    if isinstance(fetcher, SegmentSizer):
        yield lambda: fetcher.size(segment.metadata)


def examine(error: RemoteFetchError, configs: Mapping[str, str]) -> None:
    """Check that an error survives pickling unchanged, and shows no value of an option that may be a secret."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
    texts = f"{error} {error!r} {error.__cause__!r}"
    secrets = {
        name: value
        for name, value in configs.items()
        if name.startswith("remote.storage.options.") and len(value) >= _SHORTEST_SECRET_CHARS
    }
    shown = [name for name, value in secrets.items() if value in texts]
    assert not shown, f"the error shows the values of {shown}"


def fetch_log(fetcher: RemoteStorageFetcher, segment: BuiltSegment) -> Buffer:
    """The bytes of a whole segment, up to the end that its metadata has."""
    return fetcher.fetch_log_segment(segment.metadata, 0, len(segment.log))


def outcome_of(
    opened: Callable[[Mapping[str, str]], AbstractContextManager[RemoteStorageFetcher]],
    configs: Mapping[str, str],
    call: Callable[[RemoteStorageFetcher], Buffer | None],
) -> object:
    """The bytes or the error of a call, which has to end in time, with timeouts of less than a second."""
    outcome: list[object] = []
    is_open = threading.Event()
    configs = {**configs, **_TIMEOUTS}

    def run() -> None:
        try:
            with opened(configs) as fetcher:
                is_open.set()
                found = call(fetcher)
                outcome.append(None if found is None else bytes(found))
        except Exception as error:
            outcome.append(error)
        finally:
            is_open.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    is_open.wait(WAIT_S)
    thread.join(_STALL_S)
    assert outcome, f"still waiting after {_STALL_S:.0f} s, with timeouts of less than one"
    if isinstance(outcome[0], RemoteFetchError):
        examine(outcome[0], configs)
    return outcome[0]


def turns() -> Iterator[int]:
    """Numbers from 0 on for a while: a few for a slow fetcher, many for a fast one."""
    until = Deadline.after(_TURNS_S)
    return takewhile(lambda turn: turn < _LEAST_TURNS or not until.is_over, count())


@contextmanager
def often_switching() -> Iterator[None]:
    """A context in which threads change places often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)

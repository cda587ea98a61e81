"""Hypothesis strategies for whole logs: every codec, record shape, gap, transaction, epoch and cut that Kafka knows.

Rules of the file:

- hypothesis is imported when a strategy is made, never before.
- A log is drawn as a list of small steps, which are played into a LogBuilder. A step that is impossible at its place is
  skipped. So a failing log shrinks to few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from remote_fetch.model import TopicIdPartition, Uuid, is_topic_name
from remote_fetch.testing.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, SnappyFraming
from remote_fetch.testing.log_builder import FIRST_TIMESTAMP_MS, LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import SegmentOptions

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Step", "cuts", "logs", "partitions", "play", "record_lists", "segment_options", "steps"]

Step: TypeAlias = Callable[[LogBuilder], None]
"""One change of a log."""

TRANSACTIONAL_PRODUCERS = (1, 2, 3)
IDEMPOTENT_PRODUCER = 9


def partitions() -> SearchStrategy[TopicIdPartition]:
    """Partitions of topics whose names Kafka allows, with any id and number."""
    from hypothesis import strategies as st

    names = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=249).filter(is_topic_name)
    ids = st.binary(min_size=16, max_size=16).map(Uuid)
    return st.builds(TopicIdPartition, ids, names, st.integers(0, 2**31 - 1))


def _roll(log: LogBuilder) -> None:
    # A cleaner leaves bytes in every segment, so no segment is made without bytes.
    if any(batch.data and batch.base_offset >= log.cuts[-1] for batch in log.batches):
        log.roll()


def _new_epoch(log: LogBuilder) -> None:
    log.new_leader_epoch()


@dataclass(frozen=True, slots=True)
class _Batch:
    """Append a batch. A transactional producer without a transaction begins one."""

    records: tuple[list[Record], int]
    framed_codec: tuple[int, SnappyFraming]
    producer_id: int
    log_append_time_ms: int | None
    delete_horizon_ms: int | None
    same_append: bool

    def __call__(self, log: LogBuilder) -> None:
        if self.producer_id in TRANSACTIONAL_PRODUCERS and not log.in_transaction(self.producer_id):
            log.begin(self.producer_id)
        kept, last = self.records
        log.append_batch(
            kept,
            codec=self.framed_codec[0],
            snappy_framing=self.framed_codec[1],
            log_append_time_ms=self.log_append_time_ms,
            last_offset_delta=last,
            delete_horizon_ms=self.delete_horizon_ms,
            producer_id=self.producer_id,
            # An append call lies in one segment and has one leader.
            same_append=self.same_append and log.next_offset not in (log.cuts[-1], log.lineage[-1].start_offset),
        )


@dataclass(frozen=True, slots=True)
class _Legacy:
    """Append a message set if it has a record. The formats have no empty sets."""

    records: tuple[list[Record], int]
    magic: int
    framed_codec: tuple[int, SnappyFraming]
    log_append_time_ms: int | None

    def __call__(self, log: LogBuilder) -> None:
        kept, _ = self.records
        if kept:
            codec, framing = self.framed_codec
            log.append_legacy(
                kept,
                magic=self.magic,
                codec=codec,
                snappy_framing=framing,
                log_append_time_ms=self.log_append_time_ms if self.magic == 1 else None,
            )


@dataclass(frozen=True, slots=True)
class _TakeOut:
    """A batch that a cleaner has taken out."""

    count: int
    producer_id: int

    def __call__(self, log: LogBuilder) -> None:
        log.take_out(self.count, producer_id=self.producer_id)


@dataclass(frozen=True, slots=True)
class _Begin:
    """A transaction that may stay without data."""

    producer_id: int

    def __call__(self, log: LogBuilder) -> None:
        if not log.in_transaction(self.producer_id):
            log.begin(self.producer_id)


@dataclass(frozen=True, slots=True)
class _End:
    """A marker, if a transaction is open."""

    producer_id: int
    commit: bool
    bump_epoch: bool

    def __call__(self, log: LogBuilder) -> None:
        if log.in_transaction(self.producer_id):
            end = log.commit if self.commit else log.abort
            end(self.producer_id, bump_epoch=self.bump_epoch)


_SHAPES = (
    Record(0, 0, None, b"v"),
    Record(0, 0, None, None),
    None,
    Record(0, 5, b"", b""),
    Record(0, -5, b"k", b"x" * 150),
    Record(0, 1, b"key", None, (("h", b"1"),)),
    Record(0, 0, b"k" * 70, b"y", (("h", None), ("h", b""), ("", b"\x00"))),
    Record(0, 2**33, b"\xff", bytes(range(256)) * 2, (("\u00fc", b"z" * 130),)),
)
"""None is a removed record. The shapes cover the branches of the format: null and empty, lengths and deltas of one byte
and of several, negative deltas, headers with and without values, names that repeat or are not ASCII."""

_FRAMED_CODECS: tuple[tuple[int, SnappyFraming], ...] = (
    (NONE, "raw"), (GZIP, "raw"), (SNAPPY, "raw"), (SNAPPY, "xerial"), (LZ4, "raw"), (ZSTD, "raw"),
)  # fmt: skip
_TIMES_MS = (None, None, None, FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + 9)


def record_lists(*, max_records: int = 4, headers: bool = True) -> SearchStrategy[tuple[list[Record], int]]:
    """The records of one batch and its last offset delta. Some records are removed, perhaps the last.

    Each record is one draw from a few shapes, so that whole logs are cheap to draw and to shrink.
    """
    from hypothesis import strategies as st

    shapes = [shape for shape in _SHAPES if headers or shape is None or not shape.headers]
    return st.lists(st.sampled_from(shapes), min_size=1, max_size=max_records).map(_placed)


def _placed(drawn: Sequence[Record | None]) -> tuple[list[Record], int]:
    kept = [
        # A value that is neither null nor empty gets its place in the batch.
        replace(shape, offset_delta=delta, value=shape.value and shape.value + bytes((delta,)))
        for delta, shape in enumerate(drawn)
        if shape is not None
    ]
    return kept, len(drawn) - 1


def steps(*, transactions: bool = True, legacy: bool = True) -> SearchStrategy[Step]:
    """One step: a batch in half of the cases, else a change between batches."""
    from hypothesis import strategies as st

    producers = (-1, IDEMPOTENT_PRODUCER, *(TRANSACTIONAL_PRODUCERS if transactions else ()))
    between: list[Step] = []
    between += [_roll] * 5 + [_new_epoch] * 3 + [_TakeOut(2, producer) for producer in producers]
    if transactions:
        between += [_Begin(producer) for producer in TRANSACTIONAL_PRODUCERS]
        between += [
            _End(producer, commit, bump_epoch)
            for producer in TRANSACTIONAL_PRODUCERS
            for commit in (True, False)
            for bump_epoch in (True, False)
        ]
    # A new object for each place, because one_of counts the same object only once.
    kinds: list[SearchStrategy[Step]] = [st.sampled_from(between) for _ in range(3)]
    kinds += [
        st.builds(
            _Batch,
            record_lists(),
            st.sampled_from(_FRAMED_CODECS),
            st.sampled_from(producers),
            st.sampled_from(_TIMES_MS),
            st.sampled_from(_TIMES_MS),
            st.booleans(),
        )
        for _ in range(3)
    ]
    if legacy:
        sets = record_lists(headers=False)
        codecs = st.sampled_from(_FRAMED_CODECS[:-1])
        kinds.append(st.builds(_Legacy, sets, st.integers(0, 1), codecs, st.sampled_from(_TIMES_MS)))
    return st.one_of(kinds)


def logs(*, transactions: bool = True, legacy: bool = True, max_start_offset: int = 1000) -> SearchStrategy[LogBuilder]:
    """A whole log, cut into segments. The last segment and some transactions may be open."""
    from hypothesis import strategies as st

    # Lists of lists, because a single list of unbounded length is short on average.
    stretch = st.lists(steps(transactions=transactions, legacy=legacy), min_size=1, max_size=8)
    drawn = st.lists(stretch, min_size=1, max_size=8).map(lambda stretches: list(chain.from_iterable(stretches)))
    return st.builds(play, st.integers(0, max_start_offset), drawn, st.booleans())


def play(start_offset: int, drawn: Sequence[Step], close: bool = True) -> LogBuilder:
    """The log that the steps make, in order. `close` rolls at the end."""
    log = LogBuilder(start_offset=start_offset)
    for step in drawn:
        step(log)
    if close:
        _roll(log)
    return log


def segment_options() -> SearchStrategy[SegmentOptions]:
    """Every index writer: dense to empty indexes, 8- and 12-byte entries, before and after Kafka 4.0."""
    from hypothesis import strategies as st

    return st.builds(
        SegmentOptions,
        index_interval_bytes=st.sampled_from((4096, 0, 100, 300)),
        index_entry_bytes=st.sampled_from((8, 12)),
        index_per_append=st.booleans(),
        flags_empty_txn_index=st.booleans(),
    )


def cuts(log: LogBuilder) -> SearchStrategy[list[int]]:
    """Different roll points of the same log, as of another leader. At least one segment if the log has data."""
    from hypothesis import strategies as st

    possible = log.boundaries()
    chosen = st.lists(st.sampled_from(possible), min_size=min(2, len(possible)), unique=True)
    return chosen.map(sorted)

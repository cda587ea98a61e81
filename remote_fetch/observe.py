"""One observer for everything that is counted: typed events in, counters and a report out.

Rules of the file:

- An event is a frozen value that describes a fact. It never asks for an action.
- To emit an event must not fail or block.
- Events hold no secrets.
- An observer is any callable that takes an event. It may be called from several threads.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from remote_fetch.amounts import human_bytes
from remote_fetch.html_table import facts_table
from remote_fetch.model import IndexType, TopicIdPartition

__all__ = [
    "MOST_NOTICES",
    "SIZE_ANSWERS",
    "BrokerRead",
    "Counters",
    "Event",
    "Fallback",
    "IndexSettled",
    "MetadataUnusable",
    "Notice",
    "Observer",
    "RangeFetched",
    "RangeReread",
    "RangeRetried",
    "ReadEnds",
    "ReadPlanned",
    "RecordsRead",
    "Report",
    "SegmentScanned",
    "SizeAsked",
    "TimestampsSaturated",
    "ignore",
    "unusable_text",
]

MOST_NOTICES = 10_000
"""How many notices an observer remembers, so that a consumer of years keeps a bounded number."""

SIZE_ANSWERS = frozenset({"learned", "unknown"})
"""The reasons of a `SizeAsked` that are no failures."""


@dataclass(frozen=True, slots=True)
class RangeFetched:
    """One GET came back: `size_bytes` in `duration_s`. `index_type` is None for bytes of the segment."""

    partition: TopicIdPartition
    size_bytes: int
    duration_s: float
    index_type: IndexType | None = None


@dataclass(frozen=True, slots=True)
class RangeRetried:
    """One GET failed with a passing error and is repeated. `reason` is an ErrorKind."""

    partition: TopicIdPartition
    reason: str


@dataclass(frozen=True, slots=True)
class RangeReread:
    """Bytes that broke a rule are fetched a second time, from the batch at `position`."""

    partition: TopicIdPartition
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentScanned:
    """An index was missing or unusable, so the segment is read from its first byte."""

    partition: TopicIdPartition
    index_type: IndexType
    reason: str


@dataclass(frozen=True, slots=True)
class IndexSettled:
    """An index was valid with entries of either size (KIP-1333), and the bytes of the segment settled it.

    `reason` names the entries: `8-byte` or `12-byte`.
    """

    partition: TopicIdPartition
    index_type: IndexType
    reason: str


@dataclass(frozen=True, slots=True)
class SizeAsked:
    """The store was asked for the size of a segment whose metadata does not have it (KIP-1333).

    `reason` is the outcome: `learned`, `unknown` if the store does not tell it, or the ErrorKind of the failure
    (`error` for an exception that is not of this package). After a failure of the store, the reader asks for no further
    sizes. Each segment that it leaves out gives one event too, with the `reason` of that failure.
    """

    partition: TopicIdPartition
    reason: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """Offsets [first_offset, last_offset] are no longer read from their planned segment. `reason` is an ErrorKind.

    `last_offset` is -1 if the end of the log is not known, as without the right to ask for it.
    `detail` is the text of the error. It is empty if there was none, or if a notice has it.
    """

    partition: TopicIdPartition
    first_offset: int
    last_offset: int
    reason: str
    detail: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ReadPlanned:
    """A bounded read begins: the offsets [first, stop) of each partition. A later plan replaces an earlier one."""

    ranges: Mapping[TopicIdPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """`records` rows were handed on together. `next_offset` is one past the last offset that was read."""

    partition: TopicIdPartition
    records: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class TimestampsSaturated:
    """The number of returned records whose time in microseconds exceeds 64 bits. The column has the nearest value."""

    partition: TopicIdPartition
    records: int


@dataclass(frozen=True, slots=True)
class MetadataUnusable:
    """Metadata without offsets: finished segments whose base record is missing (KIP-1266), and unreadable records.

    Unreadable records are those of all partitions. Each is reported once.
    """

    partition: TopicIdPartition
    orphan_updates: int
    malformed_records: int


@dataclass(frozen=True, slots=True)
class BrokerRead:
    """Records came through the broker: `size_bytes` of their keys and values."""

    partition: TopicIdPartition
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReadEnds:
    """A read of a bucket alone, up to "latest", ends at `stop_offset` (exclusive). The log may go on there.

    `reason` is a Reason of a plan: `not-tiered` if the tier ends there, `unstable` if that is the remote stable offset
    and the tier goes on to `tier_stop_offset` (exclusive). If `stop_offset` is the larger one, it is the log start that
    the user gives, and nothing is read. `str()` gives a sentence.
    """

    partition: TopicIdPartition
    stop_offset: int
    tier_stop_offset: int
    reason: str

    @property
    def place(self) -> str:
        """TOPIC-PARTITION."""
        return self.partition.topic_partition

    def __str__(self) -> str:
        place = f"{self.place} is read up to offset {self.stop_offset} (exclusive)"
        if self.stop_offset < self.tier_stop_offset:
            return (
                f"{place}, its remote stable offset ({self.reason}): a transaction may be open from there on, and the "
                f"tier, which goes on to {self.tier_stop_offset}, does not tell how it ends"
            )
        if self.stop_offset > self.tier_stop_offset:
            return f"{self.place} starts at offset {self.stop_offset}, and the tier ends before it ({self.reason})"
        return f"{place}, where the tier ends ({self.reason})"


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the user, once.

    `is_warning`: the user should act. `is_wait`: the read waits until the cause has passed.
    """

    text: str
    is_warning: bool = False
    is_wait: bool = False


Event: TypeAlias = (
    RangeFetched
    | RangeRetried
    | RangeReread
    | SegmentScanned
    | IndexSettled
    | SizeAsked
    | Fallback
    | ReadPlanned
    | RecordsRead
    | TimestampsSaturated
    | MetadataUnusable
    | BrokerRead
    | ReadEnds
    | Notice
)
"""Everything that an observer is called with."""
Observer: TypeAlias = Callable[[Event], None]
"""A function of one event. It may be called from several threads, and must not block."""


def ignore(event: Event) -> None:
    """The observer that ignores all events."""


@dataclass(frozen=True, slots=True)
class Report:
    """The cost of a read: counts, bytes, seconds, and numbers by reason. Reports can be added.

    - `remote_*` are GETs of segments, `index_*` those of the files beside them, and `broker_*` records of a broker.
    - `fetch_s` is the time of all GETs together, in seconds. Several run at once.
    - `retries`, `rereads`, `scans`, `ties`, `sizes` and `fallbacks` count by reason.
    - `ends` has a sentence on the end of each TOPIC-PARTITION. `notices` are sentences for the user, the last
      `MOST_NOTICES` of them.
    """

    remote_bytes: int = 0
    remote_gets: int = 0
    index_bytes: int = 0
    index_gets: int = 0
    fetch_s: float = 0.0
    records: int = 0
    broker_records: int = 0
    broker_bytes: int = 0
    saturated_timestamps: int = 0
    orphan_updates: int = 0
    malformed_records: int = 0
    retries: dict[str, int] = field(default_factory=dict)
    rereads: dict[str, int] = field(default_factory=dict)
    scans: dict[str, int] = field(default_factory=dict)
    ties: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def mean_bytes_per_get(self) -> float:
        """Mean size of the GETs of segment bytes, 0 if there was none."""
        return self.remote_bytes / self.remote_gets if self.remote_gets else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON. Reasons without a count are left out."""
        return {known.name: _plain(getattr(self, known.name)) for known in fields(self)}

    def _repr_html_(self) -> str:
        """The report as a notebook shows it: the counts that are not 0, the reasons, ends and notices."""
        sizes = {"remote_bytes", "index_bytes", "broker_bytes"}
        facts: dict[str, object] = {}
        for known in fields(self):
            value = getattr(self, known.name)
            if isinstance(value, dict):
                value = "\n".join(f"{name}: {each}" for name, each in sorted(value.items()))
            elif isinstance(value, tuple):
                value = "\n".join(value)
            elif known.name in sizes and value:
                value = human_bytes(value)
            facts[known.name] = round(value, 3) if isinstance(value, float) else value
        return facts_table("report", facts)

    def __add__(self, other: Report) -> Report:
        """The cost of both reads together."""

        def sums(name: str) -> Any:
            mine, theirs = getattr(self, name), getattr(other, name)
            if name == "ends":
                return mine | theirs  # of the reads of a stream the last one counts
            if isinstance(mine, dict):
                return dict(Counter(mine) + Counter(theirs))
            return tuple(dict.fromkeys((*mine, *theirs))) if isinstance(mine, tuple) else mine + theirs

        return Report(**{known.name: sums(known.name) for known in fields(self)})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, dict) else value


def unusable_text(orphan_updates: int, malformed_records: int) -> str:
    """The text of a `MetadataUnusable`, empty if both numbers are 0."""
    orphans = f"finished segments of which metadata has an update alone, so that no offset is found: {orphan_updates}"
    malformed = f"metadata records that cannot be read: {malformed_records}"
    return "; ".join([orphans] * bool(orphan_updates) + [malformed] * bool(malformed_records))


class Counters:
    """An observer that adds up. `report()` may be called at any time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: Counter[str] = Counter()
        self._fetch_s = 0.0
        self._reasons: dict[type, Counter[str]] = {
            kind: Counter() for kind in (RangeRetried, RangeReread, SegmentScanned, IndexSettled, SizeAsked, Fallback)
        }
        self._ends: dict[str, str] = {}
        self._notices: OrderedDict[str, None] = OrderedDict()
        self._causes: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Count one event."""
        with self._lock:
            match event:
                case RangeFetched():
                    which = "remote" if event.index_type is None else "index"
                    self._sums[f"{which}_bytes"] += event.size_bytes
                    self._sums[f"{which}_gets"] += 1
                    self._fetch_s += event.duration_s
                case ReadPlanned():
                    pass
                case RecordsRead():
                    self._sums["records"] += event.records
                case TimestampsSaturated():
                    self._sums["saturated_timestamps"] += event.records
                case MetadataUnusable():
                    self._sums["orphan_updates"] += event.orphan_updates
                    self._sums["malformed_records"] += event.malformed_records
                case BrokerRead():
                    self._sums["broker_records"] += event.records
                    self._sums["broker_bytes"] += event.size_bytes
                case ReadEnds():
                    self._ends[event.place] = str(event)
                case Notice():
                    self._notices[event.text] = None
                    if len(self._notices) > MOST_NOTICES:
                        self._notices.popitem(last=False)
                case _:
                    self._reasons[type(event)][event.reason] += 1
                    self._keep_cause(event)

    def _keep_cause(self, event: Event) -> None:
        if isinstance(event, Fallback) and event.detail:
            self._causes.setdefault(event.reason, f"fallback ({event.reason}): {event.detail}")

    def causes(self) -> tuple[str, ...]:
        """A sentence for each reason of fallbacks, with the error of the first one."""
        with self._lock:
            return tuple(self._causes.values())

    def report(self) -> Report:
        """The sums so far."""
        with self._lock:
            return Report(
                **self._sums,
                fetch_s=self._fetch_s,
                retries=dict(self._reasons[RangeRetried]),
                rereads=dict(self._reasons[RangeReread]),
                scans=dict(self._reasons[SegmentScanned]),
                ties=dict(self._reasons[IndexSettled]),
                sizes=dict(self._reasons[SizeAsked]),
                fallbacks=dict(self._reasons[Fallback]),
                ends=dict(self._ends),
                notices=tuple(self._notices),
            )

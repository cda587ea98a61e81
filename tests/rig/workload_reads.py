"""Makes random bounded reads, and compares each, field by field, with a plain consumer's records for the same bounds.

Rules of the file:

- The random generator decides the bounds.
- If the ends of the log changed during a read, the read is made again.
- A difference names the bounds, its first offset, and the events of the read.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

import remote_fetch
from remote_fetch.config import Config
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.errors import OffsetOutOfRange
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.observe import Counters, Report
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import FaultKind, FaultyFetcher, Schedule, seeded
from tests.rig.rig import Rig
from tests.rig.topics import OracleRecord, broker_records, shortened
from tests.rig.workload_oracle import LogEnds, Place, Times, log_ends, offset_for_time

__all__ = ["ISOLATIONS", "Difference", "Intent", "Outcome", "check_cat", "check_outside", "check_read", "draw", "whole"]

ISOLATIONS = ("read_committed", "read_uncommitted")
_TRIES = 5
_CAT_TIMEOUT_S = 120
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERRORS = [FaultKind(kind) for kind in ("denied", "timeout", "throttled", "unavailable")]
_SEGMENT_FAULTS = [*_ERRORS, *(FaultKind(kind) for kind in ("not-found", "truncate", "short-body", "flip-byte"))]


class Difference(AssertionError):
    """The records of a read differ from those of the broker."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One random bound. `kind` is `edge`, `offset` or `time`. `fraction` is its place in the range of the log."""

    kind: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Intent:
    """A random read, drawn without knowledge of the log. `config` has keys of remote-fetch.

    If `fault_seed` is None, the store has no faults. `rates` are the shares of GETs of segment bytes and of indexes
    that fail.
    """

    isolation: str
    start: Edge
    end: Edge
    config: Mapping[str, Any]
    fault_seed: int | None = None
    rates: tuple[float, float] = (0.0, 0.0)

    def __str__(self) -> str:
        config = " ".join(f"{name}={value}" for name, value in self.config.items())
        faults = "" if self.fault_seed is None else f" faults {self.fault_seed} {self.rates}"
        return f"{self.isolation} {config}{faults}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A description of a read, and its cost. `injected` counts faults."""

    asked: str
    records: int
    report: Report
    injected: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A read with its bounds: as the user gives them, and as offsets [first, stop)."""

    starts: Mapping[int, Any]
    ends: Mapping[int, Any]
    offsets: Mapping[Place, tuple[int, int]]


def draw(dice: random.Random, *, faulty: bool = False, kinds: Sequence[str] = ("edge", "offset", "time")) -> Intent:
    """Draw a random read. `kinds` are the possible kinds of bounds."""
    config: dict[str, Any] = {
        "fetch.remote.when": dice.choice(("not-local", "always")),
        "fetch.remote.range.bytes": dice.choice((1024, 1500, 4096, 65_536, 8 << 20)),
        "fetch.remote.max.bytes": dice.choice((1024, 20_000, 64 << 20)),
    }
    start, end = (Edge(dice.choice(kinds), dice.random()) for _ in range(2))
    if start.kind == end.kind == "time":  # a start after the end is refused
        start, end = sorted((start, end), key=lambda edge: edge.fraction)
    intent = Intent(dice.choice(ISOLATIONS), start, end, config)
    if not faulty:
        return intent
    quick = {"fetch.remote.read.timeout.ms": 300, "fetch.remote.retry.backoff.ms": 10}
    rates = dice.choice((0.1, 0.3, 0.7)), dice.choice((0.0, 0.1, 0.4))
    return replace(intent, config={**config, **quick}, fault_seed=dice.randrange(2**32), rates=rates)


def whole(isolation: str) -> Intent:
    """A read of the whole log, from the store as far as possible."""
    return Intent(isolation, Edge("edge", 0), Edge("edge", 1), {"fetch.remote.when": "always"})


def check_read(
    rig: Rig,
    topic: str,
    partitions: Sequence[int],
    intent: Intent,
    times: Times,
    *,
    no_earlier: Mapping[Place, int] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Outcome:
    """Make the read, and raise Difference if the broker gives other records.

    - `times` is the range for bounds in time.
    - `no_earlier` has the least offset of each partition that may be read.
    - `meanwhile` is called after the first rows. It may write records, but not delete any.
    """
    places = [(topic, partition) for partition in partitions]
    for _ in range(_TRIES):
        ends = log_ends(rig, places, intent.isolation)
        floors = {place: max(log.start, (no_earlier or {}).get(place, 0)) for place, log in ends.items()}
        asked = _resolve(rig, intent, {place: log._replace(start=floors[place]) for place, log in ends.items()}, times)
        offsets = {partition: f"[{first}, {stop})" for (_, partition), (first, stop) in asked.offsets.items()}
        words = f"{topic} {offsets} from {_shown(asked.starts)} to {_shown(asked.ends)}, {intent}"
        try:
            found, report, injected = _read(rig, topic, intent, asked, meanwhile or _nothing)
        except Exception as error:
            raise Difference(f"{error!r} of: {words}") from error
        if meanwhile is not None or log_ends(rig, places, intent.isolation) == ends:
            _compare(found, _expected(rig, asked, intent.isolation), f"{words}\n{report}")
            return Outcome(words, len(found), report, injected)
    raise TimeoutError(f"the ends of {topic} do not come to rest")


def _shown(bounds: Mapping[int, Any]) -> str:
    return " ".join(f"{partition}:{bound}" for partition, bound in bounds.items())


def _nothing() -> None:
    """Do nothing: the default for `meanwhile`."""


def _resolve(rig: Rig, intent: Intent, ends: Mapping[Place, LogEnds], times: Times) -> _Asked:
    starts, stops, offsets = {}, {}, {}
    for place, log in ends.items():
        start, first = _bound(rig, intent.start, place, log, times, intent.isolation)
        end, stop = _bound(rig, intent.end, place, log, times, intent.isolation)
        if isinstance(start, int) and isinstance(end, int):
            start, end = first, stop = sorted((start, end))
        if start == "edge":
            start, first = "earliest", log.start
        if end == "edge":
            end, stop = "latest", log.stop
        starts[place[1]], stops[place[1]] = start, end
        offsets[place] = first, max(first, stop)
    return _Asked(starts, stops, offsets)


def _bound(rig: Rig, edge: Edge, place: Place, log: LogEnds, times: Times, isolation: str) -> tuple[Any, int]:
    """A bound as the user gives it, and its offset."""
    if edge.kind == "edge":
        return "edge", -1
    if edge.kind == "offset":
        offset = log.start + int(edge.fraction * (log.stop - log.start + 1))
        return offset, offset
    timestamp_ms = times.at(edge.fraction)
    answer = offset_for_time(rig, place, log, timestamp_ms, isolation)
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment if answer.is_certain else answer.offset, answer.offset


def _read(
    rig: Rig, topic: str, intent: Intent, asked: _Asked, meanwhile: Callable[[], None]
) -> tuple[list[OracleRecord], Report, int]:
    """The rows, the report of the read, and the number of faults."""
    if intent.fault_seed is not None:
        return _read_faulty(rig, topic, intent, intent.fault_seed, asked)
    counters = Counters()
    reader = remote_fetch.read_arrow(
        topic,
        start=asked.starts,
        end=asked.ends,
        partitions=list(asked.starts),
        isolation=intent.isolation,
        columns=COLUMNS,
        config=_config(rig, intent),
        observer=counters,
    )
    first = next(reader, None)
    meanwhile()
    batches = [] if first is None else [first, *reader]
    return [_as_oracle(row) for batch in batches for row in batch.to_pylist()], counters.report(), 0


def _read_faulty(
    rig: Rig, topic: str, intent: Intent, seed: int, asked: _Asked
) -> tuple[list[OracleRecord], Report, int]:
    config = Config.parse(_config(rig, intent))
    faulty = FaultyFetcher(load_fetcher(config), _faults(seed, *intent.rates))
    with Session(config, faulty) as session:
        plans = plan_job(
            session,
            topic,
            start=asked.starts,
            end=asked.ends,
            partitions=list(asked.starts),
            isolation=parse_isolation(intent.isolation),
        )
        rows = [row for batch in Scan(session, plans, COLUMNS).batches() for row in batch.to_pylist()]
        return [_as_oracle(row) for row in rows], session.counters.report(), len(faulty.injected)


def _faults(seed: int, segment_rate: float, index_rate: float) -> Schedule:
    segments = seeded(seed, segment_rate, _SEGMENT_FAULTS)
    # No reader can notice wrong bytes in an index without a checksum, or a false answer that it does not exist.
    indexes = seeded(seed, index_rate, _ERRORS)
    return lambda call: (segments if call.index_type is None else indexes)(call)


def _config(rig: Rig, intent: Intent) -> dict[str, Any]:
    return {"bootstrap.servers": rig.bootstrap, "remote.storage.url": str(rig.remote), "log_level": 0, **intent.config}


def _expected(rig: Rig, asked: _Asked, isolation: str) -> list[OracleRecord]:
    return [
        record
        for (topic, partition), (first, stop) in asked.offsets.items()
        if first < stop
        for record in broker_records(rig, topic, partition, isolation, start=first, stop=stop)
    ]


def _as_oracle(row: Mapping[str, Any]) -> OracleRecord:
    return OracleRecord(
        row["topic"],
        row["partition"],
        row["offset"],
        row["timestampType"],
        (row["timestamp"] - _EPOCH) // timedelta(milliseconds=1),
        row["key"],
        shortened(row["value"]),
        tuple((header["key"], header["value"]) for header in row["headers"]),
        row["leaderEpoch"],
    )


def _compare(found: Sequence[OracleRecord], expected: Sequence[OracleRecord], words: str) -> None:
    if found == expected:
        return
    for number, (ours, theirs) in enumerate(zip_longest(found, expected)):
        if ours != theirs:
            raise Difference(
                f"{len(found)} records, of the broker {len(expected)}; record {number} differs\n"
                f"ours:   {ours}\nbroker: {theirs}\nof: {words}"
            )


def check_outside(rig: Rig, place: Place, isolation: str) -> str:
    """Check that starts before and after the log are refused. Raises Difference if one is not."""
    topic, partition = place
    log = log_ends(rig, [place], isolation)[place]
    config = _config(rig, whole(isolation))
    for start in (log.start - 1, log.stop + 1):
        if start < 0:  # a negative start stands for an end of the log
            continue
        try:
            remote_fetch.read_arrow(topic, start=start, partitions=[partition], isolation=isolation, config=config)
        except OffsetOutOfRange:
            continue
        raise Difference(f"{topic}-{partition} has {log}, and yet a read begins at {start}")
    return f"{topic}-{partition} outside {log} {isolation}"


def check_cat(rig: Rig, place: Place, isolation: str, dice: random.Random, times: Times) -> Outcome:
    """Run `remote-fetch cat` with random bounds in kcat's form. Raises Difference if it prints other records."""
    topic, partition = place
    log = log_ends(rig, [place], isolation)[place]
    count, limit = 1 + dice.randrange(40), 1 + dice.randrange(60)
    timestamp_ms = times.at(dice.random())
    at_time = offset_for_time(rig, place, log, timestamp_ms, isolation)
    timed = at_time.offset if at_time.is_certain else None
    argv, first, stop = dice.choice(
        (
            ((), log.start, log.stop),
            (("-o", f"-{count}"), max(log.stop - count, log.start), log.stop),
            (("-c", f"{limit}"), log.start, log.stop),
            ((), log.start, log.stop) if timed is None else (("-o", f"s@{timestamp_ms}"), timed, log.stop),
            ((), log.start, log.stop) if timed is None else (("-o", f"e@{timestamp_ms}"), log.start, timed),
        )
    )
    common = ["-b", rig.bootstrap, "--url", str(rig.remote), "-t", topic, "-p", f"{partition}", "-X", "log_level=0"]
    command = ["cat", *common, "--isolation", isolation, "-q", "-e", "-J", "--binary", "base64", *argv]
    done = subprocess.run(
        [sys.executable, "-m", "remote_fetch", *command], capture_output=True, timeout=_CAT_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise Difference(f"{command} says {done.stderr.decode()}")
    expected = _expected(rig, _Asked({}, {}, {place: (first, stop)}), isolation)
    if "-c" in argv:
        expected = expected[:limit]
    found = [_from_json(line) for line in done.stdout.splitlines()]
    _compare(found, [replace(record, leader_epoch=-1) for record in expected], " ".join(command))
    return Outcome(f"{topic}-{partition} {' '.join(argv)} {isolation}", len(found), Report())


def _from_json(line: bytes) -> OracleRecord:
    fields = json.loads(line)
    headers = fields.get("headers", ())
    names, values = headers[::2], headers[1::2]
    return OracleRecord(
        fields["topic"],
        fields["partition"],
        fields["offset"],
        {"create": 0, "logappend": 1}[fields["tstype"]],
        fields["ts"],
        _bytes(fields["key"]),
        shortened(_bytes(fields["payload"])),
        tuple(zip(names, map(_bytes, values), strict=True)),
        -1,
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)

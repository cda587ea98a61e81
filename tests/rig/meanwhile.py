"""Reads a topic, and changes the log or the store during the read, before a chosen segment is fetched.

Rules of the file:

- The progress of the read decides the time of the change, not a clock.
- The read waits for the change, so its deadline is long enough for it.
- Little is fetched ahead, so that the reader meets the change in the middle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException

from remote_fetch.config import Config
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.errors import RemoteFetchError
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.observe import Event, Notice, Report
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from remote_fetch.testing.faults import Fault, FaultyFetcher, FetchCall
from tests.rig.rig import Rig
from tests.rig.test_read import as_oracle, config_of
from tests.rig.topics import OracleRecord

__all__ = ["PLANNED", "Outcome", "read_meanwhile"]

PLANNED = -1
"""The time after planning and before the first read."""

Happening = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The records of a read, and the error that ended it."""

    records: list[OracleRecord]
    report: Report
    events: list[Event]
    error: Exception | None

    def said(self, text: str) -> int:
        """The number of notices that contain `text`."""
        return sum(isinstance(event, Notice) and text in event.text for event in self.events)


def read_meanwhile(rig: Rig, topic: str, isolation: str, happenings: Mapping[int, Happening], **config: Any) -> Outcome:
    """Read a whole topic. Each of `happenings`, by offset, is called once.

    It is called before the store gives any byte of a segment that begins at that offset or later.
    """
    narrow = {"fetch_remote_range_bytes": 1024, "fetch_remote_max_bytes": 2048, "fetch_remote_read_timeout_ms": 200_000}
    parsed = Config.parse(config_of(rig, **{**narrow, **config}))
    left, lock = dict(happenings), threading.Lock()
    before_reading = left.pop(PLANNED, None)

    def schedule(call: FetchCall) -> Fault | None:
        if call.index_type is None:
            with lock:  # other threads wait too until the call has returned
                for offset in sorted(one for one in left if one <= call.metadata.start_offset):
                    left.pop(offset)()
        return None

    records: list[OracleRecord] = []
    events: list[Event] = []
    error: Exception | None = None
    with Session(parsed, FaultyFetcher(load_fetcher(parsed), schedule), events.append) as session:
        level = parse_isolation(isolation)
        plans = plan_job(session, topic, start="earliest", end="latest", partitions=None, isolation=level)
        if before_reading is not None:
            before_reading()
        try:
            for batch in Scan(session, plans, COLUMNS).batches():
                records += as_oracle(batch.to_pylist())
        except (RemoteFetchError, KafkaException) as raised:
            error = raised
        assert not left, "the read did not come that far"
        return Outcome(records, session.counters.report(), events, error)

"""The scope of an audit, and the sources of its facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from remote_fetch.checks.findings import Finding
from remote_fetch.fetch.inventory import ObjectInventory
from remote_fetch.locate.replay import Replay
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition, Uuid

__all__ = ["AuditOptions", "AuditSources"]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The scope of an audit.

    - `topic` is one topic (NAME or NAME:ID), None: all topics.
    - A copy or a deletion that began before `stale_before_ms` and did not end is a finding.
    - `is_deep`: every segment is read whole.
    """

    topic: str | None
    stale_before_ms: int
    is_deep: bool = False


@dataclass(frozen=True, slots=True)
class AuditSources:
    """Where an audit gets its facts.

    - `inventory` tells the objects. `stored_size` as `StoredSizer.stored_size`.
    - `open_records` opens the metadata topic with a function that makes empty replays. The result reads on to the end.
    - `topic_id` tells the id that a topic has now: `NO_ID` if there is none, None if the brokers do not tell.
    - `log_start` tells the log start offset of a partition, None if the brokers do not tell.
    - `read_deeply` tells what is wrong with the bytes of a segment.
    """

    inventory: ObjectInventory
    open_records: Callable[[Callable[[Uuid | None], Replay]], Callable[[], object]]
    topic_id: Callable[[str], Uuid | None]
    log_start: Callable[[TopicIdPartition], int | None]
    read_deeply: Callable[[RemoteLogSegmentMetadata], Iterable[Finding]] = lambda _: ()
    stored_size: Callable[[RemoteLogSegmentMetadata], int | None] = lambda _: None

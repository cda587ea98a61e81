"""Restores a topic of a tier into a topic of another cluster: each record once, in order, also after a crash.

Rules of the file:

- The records of a partition come in one order in every run. So the records in the new partition are the first ones of
  that order, and their number says where a later run goes on.
- Between two runs the old log may lose its first records. Then a run does not count by its own plan what a run before
  has written, because it no longer sees all of these records.
- The new topic belongs to the restore. A record of another writer is found by the number of records, and ends the job.
  Between a run that was killed and the next one their number tells nothing. Only the comparison in the end finds it.
- The journal of a job that is given up has no record whose place is in doubt.
- The journal is behind the topic, never ahead of it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remote_fetch.deadline import Deadline
from remote_fetch.errors import ConfigError
from remote_fetch.model import IsolationLevel
from remote_fetch.observe import ReadPlanned
from remote_fetch.prepare.job import plan_job, planned_read
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.restore.journal import Journal, JournalHead
from remote_fetch.restore.offset_map import OffsetMap
from remote_fetch.restore.records import (
    Batches,
    Stretches,
    count_of,
    first_stretches,
    old_records,
    records_of,
    stretches_of,
)
from remote_fetch.restore.target import Target
from remote_fetch.session.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Restore", "RestoreRequest", "Restored"]

_CHECKPOINT_BYTES = 64 << 20
_CHECKPOINT_S = 5.0
_STABLE_S = 2.0
"""How long the end of a partition has to stay the same before a run goes on: a request of the run before may still be
under way in the broker."""
_LOOK_AGAIN_S = 0.5
_SETTLE_S = 60.0
"""How long ends may go on to change. A request of a run before is over by then."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The old topic, by its name (NAME or NAME:ID), and the journal of the job.

    - `topic_config`, `replication` and `partitions` are for a new topic that is made. `replication` -1: as the brokers
      have it. `partitions` 0: up to the last one that the tier has.
    - `any_retention`: the new topic may delete old records.
    """

    topic: str
    journal: Path
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    topic_config: Mapping[str, str] | None = None
    replication: int = -1
    any_retention: bool = False
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome: records and bytes of keys and values of this run, and the records of all runs by partition.

    - `untimed` counts records of this run whose timestamp no producer can send (0 and below).
    - `keeps_offsets`: each record has its old offset.
    """

    records: int
    size_bytes: int
    untimed: int
    of_partitions: Mapping[int, int]
    keeps_offsets: bool


class Restore:
    """One run of a restore. Its session hears of the offsets that are left to read."""

    def __init__(self, session: Session, target: Target, request: RestoreRequest) -> None:
        self._session = session
        self._target = target
        self._request = request
        self._records = self._size_bytes = self._untimed = 0
        self.plans: tuple[PartitionPlan, ...] = ()
        self.maps: Mapping[int, OffsetMap] = {}

    def run(self) -> Restored:
        """Write what the new topic lacks.

        Raises ConfigError for a target that is not the job's, the errors of reading, and KafkaException of the target.
        """
        request = self._request
        self.planned()
        is_new = not Journal.is_begun(request.journal)
        journal = self._begin() if is_new else Journal.resume(request.journal)
        try:
            if not is_new:
                self._check_job(journal)
                self._take_over(journal)
            self.maps = journal.maps
            journal.note_reads(self._stops())
            self._session.observe(self._left(journal))
            for plan in self.plans:
                self._partition(plan, journal)
            self._check_ends(journal, dict.fromkeys(journal.maps, 0))
        finally:
            journal.close()
        of_partitions = {number: sum(run.records for run in each.runs()) for number, each in journal.maps.items()}
        keeps = all(each.keeps_offsets for each in journal.maps.values())
        return Restored(self._records, self._size_bytes, self._untimed, of_partitions, keeps)

    def give_up(self, number: int) -> None:
        """Note after `run` that a partition of the new topic has other records behind those of the job."""
        with closing(Journal.resume(self._request.journal)) as journal:
            journal.give_up(number)

    def _stops(self) -> dict[int, int]:
        """The offsets, exclusive, up to which this run reads the old partitions."""
        return {partition.partition: stop for partition, (_, stop) in planned_read(self.plans).ranges.items()}

    def _left(self, journal: Journal) -> ReadPlanned:
        """The read of the offsets that no run before has written."""
        ranges = {}
        for partition, (first, stop) in planned_read(self.plans).ranges.items():
            ranges[partition] = min(max(journal.maps[partition.partition].source_next, first), stop), stop
        return ReadPlanned(ranges)

    def planned(self) -> tuple[PartitionPlan, ...]:
        """The plans of all partitions. Raises the errors of planning."""
        request = self._request
        self.plans = plan_job(
            self._session, request.topic, start="earliest", end="latest", partitions=None, isolation=request.isolation
        )
        if not self.plans:
            raise ConfigError(f"the tier has no partition of {request.topic!r}", key="-t")
        return self.plans

    # ------------------------------------------------------------------------------------------------ begin and resume

    def _begin(self) -> Journal:
        """A new job. The new topic is made, or is there and empty."""
        request, partition = self._request, self.plans[0].opened.partition
        numbers = [plan.opened.partition.partition for plan in self.plans]
        target_id = self._target.open(
            self._partition_count(max(numbers) + 1),
            request.topic_config or {}, request.replication, any_retention=request.any_retention,
        )  # fmt: skip
        ends = self._target.ends(numbers)
        starts = self._target.starts(numbers)
        filled = [number for number in numbers if ends[number] > starts[number]]
        if filled:
            raise ConfigError(
                f"the topic {self._target.topic!r} of the target has records, in partition {filled[0]}",
                key="--to-topic",
                hint="Name an empty topic (--to-topic), or the journal of the run that wrote them (--journal): "
                f"there is no {request.journal}",
            )
        head = JournalHead(
            partition.topic, str(partition.topic_id), request.isolation.value, self._target.topic, target_id, ends,
            {plan.opened.partition.partition: _first_of(plan) for plan in self.plans},
        )  # fmt: skip
        return Journal.create(request.journal, head)

    def _partition_count(self, needed: int) -> int:
        if self._request.partitions and self._request.partitions < needed:
            raise ConfigError(
                f"--partitions is {self._request.partitions}, and the tier has partition {needed - 1} of "
                f"{self._request.topic!r}",
                key="--partitions",
                hint=f"Name {needed} or more",
            )
        return max(self._request.partitions, needed)

    def _check_job(self, journal: Journal) -> None:
        """Raise ConfigError if the journal belongs to another job."""
        request, partition = self._request, self.plans[0].opened.partition
        head = JournalHead(
            partition.topic, str(partition.topic_id), request.isolation.value, self._target.topic,
            self._target.topic_id(), journal.head.starts, journal.head.source_starts,
        )  # fmt: skip
        if head != journal.head:
            raise ConfigError(
                f"{request.journal} belongs to another job: {_described(journal.head)}; now {_described(head)}",
                key="--journal",
                hint="Name the same topics and isolation level as the run before, or a new journal and an empty topic",
            )
        numbers = {plan.opened.partition.partition for plan in self.plans}
        if numbers != journal.maps.keys():
            raise ConfigError(
                f"the old topic has the partitions {sorted(numbers)} now, and had {sorted(journal.maps)} when "
                f"{request.journal} was begun",
                key="--journal",
                hint="Begin again with an empty topic and a new journal",
            )

    def _take_over(self, journal: Journal) -> None:
        """Find the records that the new topic has and the journal has not."""
        ends = self._stable_ends(journal.maps.keys())
        found: dict[int, Stretches] = {}
        for plan in self.plans:
            number = plan.opened.partition.partition
            known = journal.maps[number]
            ahead = ends[number] - known.target_next
            if ahead < 0:
                raise ConfigError(
                    f"partition {number} of the target ends with offset {ends[number] - 1}, and the journal knows "
                    f"records up to {known.target_next - 1}",
                    key="--journal",
                    hint="The target has lost records. Begin again with an empty topic and a new journal",
                )
            if ahead and self._has_moved(plan, journal):
                raise ConfigError(
                    f"partition {number} of the old topic begins with offset {_first_of(plan)} now. The run before may "
                    f"have written older records: {ahead} records of the target are not in the journal",
                    key="--journal",
                    hint="Begin again with an empty topic and a new journal. Keep the old records longer until it ends",
                )
            found[number] = first_stretches(self._batches(plan, known), ahead)
            if more := ahead - count_of(found[number]):
                stop, seen = self._stops().get(number, 0), journal.reads.get(number, 0)
                if stop < seen:
                    raise ConfigError(
                        f"partition {number} of the old topic can be read up to offset {stop - 1} now, and a run "
                        f"before read up to {seen - 1}: {more} records of the target are behind that",
                        key="-t",
                        hint="Run it with the storage and brokers of the run before, or when the tier has grown",
                    )
                journal.give_up(number)
                raise ConfigError(
                    f"partition {number} of the target has {more} records more than the tier",
                    key="--to-topic",
                    hint="Another writer has written to the topic. Begin again with an empty topic and a new journal",
                )
        for number, stretches in found.items():
            for source, count in stretches:
                journal.add(number, source, count)
        journal.sync()

    @staticmethod
    def _has_moved(plan: PartitionPlan, journal: Journal) -> bool:
        """Whether the old log may have lost records that the journal does not know, and a run before has written."""
        first, number = _first_of(plan), plan.opened.partition.partition
        return first > max(journal.maps[number].source_next, journal.head.source_starts.get(number, first))

    def _stable_ends(self, numbers: Collection[int]) -> dict[int, int]:
        """The ends of the new partitions, after they have not changed for a while.

        Raises ConfigError if they go on to change.
        """
        ends = self._target.ends(numbers)
        deadline, until = Deadline.after(_SETTLE_S), Deadline.after(_STABLE_S)
        while not until.is_over:
            time.sleep(_LOOK_AGAIN_S)
            now = self._target.ends(numbers)
            if now != ends and deadline.is_over:
                changed = next(number for number in now if now[number] != ends[number])
                raise ConfigError(
                    f"partition {changed} of the target still grows after {_SETTLE_S:.0f} s",
                    key="--to-topic",
                    hint="Another writer writes to the topic, or another run with this journal. Stop it first",
                )
            if now != ends:
                ends, until = now, Deadline.after(_STABLE_S)
        return ends

    # --------------------------------------------------------------------------------------------------------- records

    def _batches(self, plan: PartitionPlan, known: OffsetMap) -> Batches:
        """The records of a partition that follow those of the map."""
        return old_records(self._session, plan, max(known.source_next, 0))

    def _partition(self, plan: PartitionPlan, journal: Journal) -> None:
        number = plan.opened.partition.partition
        pending: Stretches = []
        # After the start has moved, a run that was killed before its first checkpoint could not go on.
        pending_bytes, since = _CHECKPOINT_BYTES if self._has_moved(plan, journal) else 0, time.monotonic()
        for batch in self._batches(plan, journal.maps[number]):
            pending += stretches_of(batch)
            pending_bytes += self._write(number, batch)
            if pending_bytes >= _CHECKPOINT_BYTES or time.monotonic() - since >= _CHECKPOINT_S:
                self._checkpoint(number, journal, pending)
                pending, pending_bytes, since = [], 0, time.monotonic()
        self._checkpoint(number, journal, pending)

    def _write(self, number: int, batch: pa.RecordBatch) -> int:
        size_bytes = 0
        for key, value, headers, timestamp_ms in records_of(batch):
            self._target.write(number, key, value, headers, timestamp_ms)
            self._untimed += timestamp_ms < 1
            size_bytes += len(key or b"") + len(value or b"")
        self._records += batch.num_rows
        self._size_bytes += size_bytes
        return size_bytes

    def _checkpoint(self, number: int, journal: Journal, pending: Stretches) -> None:
        """Wait until all records are acknowledged, and note them. Raises ConfigError if there are others too."""
        if not pending:
            return
        self._target.flush()
        self._check_ends(journal, {number: count_of(pending)})
        for source, count in pending:
            journal.add(number, source, count)
        journal.sync()

    def _check_ends(self, journal: Journal, unnoted: Mapping[int, int]) -> None:
        """Raise ConfigError if partitions of the new topic have other records than this job's.

        `unnoted` has how many records a partition has that are not in the journal. If there are more, no later run goes
        on: it would count them as the next ones of the old topic. If there are fewer, the brokers may only be late.
        """
        wanted = {number: journal.maps[number].target_next + count for number, count in unnoted.items()}
        ends = self._target.ends(wanted)
        # More records come first: fewer of another partition must not keep them out of the journal.
        for number, known in sorted(wanted.items(), key=lambda one: one[1] - ends[one[0]]):
            end = ends[number]
            if end < known:
                raise ConfigError(
                    f"partition {number} of the target ends with offset {end - 1}, and {known - 1} was written last",
                    key="--to-topic",
                    hint="A leader that was just replaced may say so once. Run the command again: it says whether the "
                    "target has lost records",
                )
            if end > known:
                journal.give_up(number)
                raise ConfigError(
                    f"partition {number} of the target ends with offset {end - 1}, and {known - 1} was written last",
                    key="--to-topic",
                    hint="Another writer writes to the topic, or a broker was restarted and took records a second time "
                    "(docs/howto/restore.md). Begin again with an empty topic and a new journal",
                )


def _first_of(plan: PartitionPlan) -> int:
    """The first offset that a plan reads, 0 if it reads none."""
    return plan.steps[0].first_offset if plan.steps else 0


def _described(head: JournalHead) -> str:
    return f"{head.topic}:{head.topic_id} ({head.isolation}) to {head.target}:{head.target_id}"

"""A job whose target is a table: it goes on where the table ends, and its commit is one version of the table.

Rules of the file:

- The table's own properties say where it ends. Nothing else is believed.
- A commit comes in only upon the progress that the job was planned for. If another job was first, the rest is planned
  again: records that both wanted are in the table once.
- A job's name comes from its arguments, from the table's own id and from its progress. So the same call again, after a
  kill, is the same job until its commit is in, and another one afterwards. Two tables at one location, as after a
  rename, never share a job's folder.
- A file is removed only if it is known to be in no version of the table. A driver that is overtaken leaves the files of
  a job that was committed by another driver: that one removes the rest.
"""

from __future__ import annotations

import hashlib
import json
import random
import time

from remote_fetch.errors import TableRefused
from remote_fetch.prepare.subscribed import topic_name
from remote_fetch.tables.job import JobSpec, all_records, saved_or_planned
from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.planning import PlannedJob
from remote_fetch.tables.progress import Progress
from remote_fetch.tables.report import TableReport, report_of
from remote_fetch.tables.saved_tasks import base_of
from remote_fetch.tables.staging import Staging
from remote_fetch.tables.table import Addition, Table, TableChanged, check_numbers

__all__ = ["run_table_job"]

_ROUNDS = 5
"""How often a job is planned again because others were first."""
_COMMITS = 20
"""How often a commit is tried while others commit what does not concern it."""
_PAUSE_S = 0.05


class _Overtaken(Exception):
    """The table has other offsets of the job's partitions than it was planned for."""


def run_table_job(table: Table, spec: JobSpec) -> TableReport:
    """Bring the job into the table. Raises TableRefused, ConfigError, and the errors of planning and reading."""
    began_s = time.monotonic()
    topic = topic_name(spec.topic)
    check_numbers(table, spec.schema)
    notices: list[str] = []
    trouble: Exception | None = None
    for _ in range(_ROUNDS):
        planned = None
        if table.refresh():
            table.check(spec.schema, spec.partition_by)
            held = table.progress(topic)
            notices += _tidy_up(table, topic, held)
        else:
            held, planned = None, spec.plan(None)  # a topic that is not there makes no table
            table.create(spec.schema, spec.partition_by)
        staging = _staging(table, spec, held)
        job = None
        try:
            _, job = saved_or_planned(staging, spec, held, planned)
            records, run, upon = _run_and_commit(table, spec, staging, job, held)
        except Exception as error:
            trouble = error
            _look_again(table, error)  # the commit may have come in, with the answer lost
            if table.progress(topic) == held:
                raise
            # A job that another one has overtaken can never commit. A driver that runs the same job finds that, too.
            if job is not None and _moved(held, table.progress(topic), job.reads):
                notices += _drop(table, staging)
            continue
        if job.reads.offsets:  # else another driver may have found more, and be writing it
            notices += _drop(table, staging, frozenset(record.attempt for record in records))
        return report_of(
            staging.job_id,
            table.name,
            records,
            tasks_run=run,
            seconds=time.monotonic() - began_s,
            added=job.reads,
            held=job.reads if upon is None else upon.followed_by(job.reads),
            partitions=job.partitions,
            notices=[*job.notices, *notices],
            fallbacks=job.fallbacks,
        )
    raise TableRefused(
        f"{table.name}: other jobs were first {_ROUNDS} times", hint="Let one job at a time write a topic into a table"
    ) from trouble


def _run_and_commit(
    table: Table, spec: JobSpec, staging: Staging, job: PlannedJob, held: Progress | None
) -> tuple[tuple[TaskRecord, ...], int, Progress | None]:
    """Run the tasks that have no record, and commit.

    Returns the records, how many tasks were run, and the progress of the table upon which the job was committed. Raises
    _Overtaken, and the errors of `run_table_job`.
    """
    if not job.reads.offsets:
        return (), 0, held
    own = staging.of_plan(job.key)
    writer = spec.writer(own, is_hive=table.is_hive, of_table=True, required=table.required())
    records, run = all_records(own, writer, job, spec.run)
    if run:
        _look_again(table)  # credentials that the catalog gave may have ended with the tasks
        table.check(spec.schema, spec.partition_by)
    return records, run, _commit(table, spec, Addition(staging.job_id, records, job.reads, held))


def _staging(table: Table, spec: JobSpec, held: Progress | None) -> Staging:
    """The working place of the job. One that an older release began has a name without the table's id, and keeps it."""
    folder = table.folder()
    older = folder.staging(_job_id(spec, held))
    return folder.staging(_job_id(spec, held, table.table_id())) if older.plan() is None else older


def _job_id(spec: JobSpec, held: Progress | None, *table_id: str) -> str:
    """The name of the job: 60 bits in 15 letters."""
    base = None if held is None else [held.topic_id, sorted(held.ends.items())]
    return hashlib.sha256(json.dumps([spec.fingerprint, base, *table_id]).encode("utf-8")).hexdigest()[:15]


def _commit(table: Table, spec: JobSpec, addition: Addition) -> Progress | None:
    """Commit upon the newest version, and return the progress that it had of the topic.

    Raises _Overtaken if the job's partitions moved on, TableRefused if it fails.
    """
    base, topic, trouble = addition.held, addition.reads.topic, None
    for _ in range(_COMMITS):
        # The version that is seen may be newer than the plan. A table that another job has just made has its records.
        held = table.progress(topic)
        if _moved(base, held, addition.reads):
            raise _Overtaken from trouble
        try:
            table.commit(Addition(addition.job_id, addition.records, addition.reads, held), spec.schema)
            return held
        except TableChanged as error:
            trouble = error
            time.sleep(_PAUSE_S * (1 + random.random()))
            _look_again(table, error)
            table.check(spec.schema, spec.partition_by)  # other columns may have come in
    raise TableRefused(
        f"{table.name}: {_COMMITS} times another commit was first, and none of them was of this topic",
        hint="The files are written: the same call again only commits them",
    )


def _look_again(table: Table, error: Exception | None = None) -> None:
    if not table.refresh():
        raise TableRefused(f"the table {table.name} is not there any more") from error


def _moved(base: Progress | None, held: Progress | None, reads: Progress) -> bool:
    before, now = ({} if progress is None else progress.ends for progress in (base, held))
    is_other = base is not None and held is not None and base.topic_id != held.topic_id
    return is_other or any(before.get(number) != now.get(number) for number in reads.ranges)


def _tidy_up(table: Table, topic: str, held: Progress | None) -> list[str]:
    """Remove what ended jobs of a topic have left.

    A job has ended if the table moved on from the progress it was planned for.

    Returns sentences on files that stay, because they may be part of an older version of the table.
    """
    left = []
    ends = {} if held is None else held.ends
    folder = table.folder()
    for job_id in folder.jobs():
        staging = folder.staging(job_id)
        text = staging.plan()
        base = None if text is None else base_of(text, topic)
        if base is None or all(ends.get(number, -1) == end for number, end in base.items()):
            continue
        left += _leave(table, staging)
    return left


def _leave(table: Table, staging: Staging) -> list[str]:
    """Remove plan and records of a job. Returns a sentence on its files if any of them is not in the version seen."""
    staging.clean_up()
    if staging.attempt_names() <= table.attempts_of(staging.job_id):
        return []
    return [f"{table.name}: what is in no version of {staging.attempts} is left of a job that ended early"]


def _drop(table: Table, staging: Staging, kept: frozenset[str] | None = None) -> list[str]:
    """Remove what a job has left, but for the attempts in `kept`, and those of the table's versions.

    `kept` is None if the job cannot commit any more. Then it leaves its files if another driver has committed it.

    Returns sentences on files that stay. The table has the job's records already, so an error does not end the run.
    """
    try:
        if kept is None and table.has_commit_of(staging.job_id):
            return _leave(table, staging)
        if not staging.attempt_names() <= (kept or frozenset()):
            staging.drop_attempts((kept or frozenset()) | table.attempts_of(staging.job_id))
        staging.clean_up()
    except Exception as error:  # of a library, too, whose text may have secrets
        return [f"{table.name}: what is in no version of {staging.attempts} may be left ({type(error).__name__})"]
    return []

"""A job whose target is a directory of Parquet files.

Rules of the file:

- The driver plans, hands out tasks and commits; it reads no record.
- The same call again is the same job: it resumes a job that failed, and does nothing if the job is done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from remote_fetch.errors import ConfigError, StorageUnavailable
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.tables.job import JobSpec, all_records, saved_or_planned
from remote_fetch.tables.job_records import Committed
from remote_fetch.tables.report import TableReport, report_of
from remote_fetch.tables.target import Target

__all__ = ["run_directory_job"]

_OVERTAKEN = "another driver of the job was first: the target has what that one has read"
_OTHER = "A target is a directory of one job: choose another"


def run_directory_job(target: Target, url: str, spec: JobSpec) -> TableReport:
    """Bring the job into the target. Raises ConfigError for a target of another job, and the errors of the job."""
    began_s = time.monotonic()
    try:
        done = _finished(target, url)
        return _run_and_commit(target, url, spec, began_s) if done is None else _report(done, url, began_s)
    except ConfigError:
        raise  # no other driver is the cause of it
    except Exception as error:
        # Another driver that commits moves or removes the files that this one looks for. Of a task it is Spark's error.
        done = None if target.committed() is None else _finished(target, url)
        if done is not None:
            return _report(done, url, began_s, notices=[_OVERTAKEN])
        if isinstance(error, PermissionError) and error.filename == target.staging:
            raise ConfigError(
                f"{url}: no files can be staged beside it: {file_fault(error)}",
                key="to",
                hint="The user needs permission to write into the directory that holds the target",
            ) from error
        raise


def _run_and_commit(target: Target, url: str, spec: JobSpec, began_s: float) -> TableReport:
    """Run the tasks that have no record, and commit. If another driver commits first, a file is not there any more."""
    fingerprint, job = saved_or_planned(target, spec, None)
    if fingerprint != spec.fingerprint:
        raise ConfigError(
            f"the job {target.job_id} was begun with other arguments: topic, options, columns, partition_by or the "
            "columns that transform gives",
            key="job_id",
            hint="Give another job_id to start a new job",
        )
    own = target.of_plan(job.key)
    records, run = all_records(own, spec.writer(own), job, spec.run)
    done = _finished(target, url)  # another driver may have committed while the tasks ran
    if done is None:
        target.decide(Committed(target.job_id, spec.topic, records, job.reads, job.partitions))
        done = _finished(target, url)
    if done is None:
        raise StorageUnavailable(
            f"{target.staging} does not have the manifest that was just written there",
            hint="Another driver may have begun the job again. The same call again goes on",
        )
    if [record.attempt for record in done.records] != [record.attempt for record in records]:
        return _report(done, url, began_s, run, notices=[*job.notices, _OVERTAKEN])
    return _report(done, url, began_s, run, job.fallbacks, job.notices)


def _finished(target: Target, url: str) -> Committed | None:
    """The manifest of the job if it is done; finishes a commit that was begun. None if tasks are still to run.

    Raises ConfigError for a target that holds another job or other files, and for a mount point.
    """
    try:
        done = target.committed()
    except NotADirectoryError:
        raise ConfigError(
            f"{url}: there is a file of this name, or of that of a directory above it", key="to", hint=_OTHER
        ) from None
    if done is not None:
        if done.job_id != target.job_id:
            raise ConfigError(
                f"{url} holds the job {done.job_id} of {done.topic}, and this one is {target.job_id}",
                key="to",
                hint="A target belongs to one job: choose another, or remove this one",
            )
        target.clean_up()
        return done
    begun = target.decided()
    if begun is not None:
        target.complete(begun)
        return begun
    if not target.is_free():
        # Another driver may have begun its commit, or have ended it, since both were looked for.
        if target.decided() is not None or target.committed() is not None:
            return _finished(target, url)
        raise ConfigError(f"{url} is not empty, and no backfill() or export has ended in it", key="to", hint=_OTHER)
    if target.is_mount_point():
        raise ConfigError(
            f"{url} is a mount point: a rename cannot put the files in place there",
            key="to",
            hint=f"Name a directory in it, as {url.rstrip('/')}/orders",
        )
    return None


def _report(
    done: Committed,
    url: str,
    began_s: float,
    tasks_run: int = 0,
    fallbacks: Mapping[str, int] = MappingProxyType({}),
    notices: Sequence[str] = (),
) -> TableReport:
    return report_of(
        done.job_id,
        url,
        done.records,
        tasks_run=tasks_run,
        seconds=time.monotonic() - began_s,
        added=done.reads,
        held=done.reads,
        partitions=done.partitions,
        notices=notices,
        fallbacks=fallbacks,
    )

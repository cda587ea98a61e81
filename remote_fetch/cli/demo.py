"""`remote-fetch demo`: real segments, written by a real Kafka broker, read straight from their bucket.

The bucket ships with the package. Kafka 4.1.1 with LocalTieredStorage wrote it. Its topics hold committed and aborted
transactions, and compressed batches.

Rules of the file:

- The demo runs the same code as the other commands, and prints the command that shows the same.
- `--copy` writes the bucket into a directory that does not exist yet. It changes nothing that is there.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

from remote_fetch.cli.ls import print_segments
from remote_fetch.cli.plan import print_plan
from remote_fetch.cli.printer import ROW_COLUMNS, iso_time
from remote_fetch.cli.report import report_lines
from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.model import IsolationLevel
from remote_fetch.prepare.job import plan_job
from remote_fetch.prepare.view import PartitionPlan
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session

__all__ = ["add_options", "run"]

_TOPIC = "tx"
_PARTITION = 1
_WIDTH = 56


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--copy", metavar="DIR", help="write the bucket into this new directory, and read nothing")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code."""
    bucket = Path(__file__).with_name("demo_bucket")
    if arguments.copy is not None:
        return _copy(bucket, arguments.copy)
    began = time.monotonic()
    with Session.open({"remote.storage.url": str(bucket)}) as session:
        _title(f"The segments of topic {_TOPIC}", f"remote-fetch ls --url {bucket} -t {_TOPIC}")
        print_segments(session, [_TOPIC], None, as_json=False)
        _title("What a read would fetch", f"remote-fetch plan --url {bucket} -t {_TOPIC}")
        print_plan(_plans(session, IsolationLevel.READ_COMMITTED, None), session.reader.range_bytes)
        _title(
            f"The records of {_TOPIC}-{_PARTITION} under both isolation levels",
            f"remote-fetch cat --url {bucket} -t {_TOPIC} -p {_PARTITION} --isolation read_uncommitted",
        )
        everything = _read(session, IsolationLevel.READ_UNCOMMITTED)
        committed = {row["offset"]: row for row in _read(session, IsolationLevel.READ_COMMITTED)}
        print(f"{'read_uncommitted':{_WIDTH}}read_committed")
        for row in everything:
            same = committed.get(row["offset"])
            print(f"{_shown(row):{_WIDTH}}{_shown(same) if same else '(aborted)'}")
        _title("The report of both reads", "")
        for line in report_lines(session.counters.report(), time.monotonic() - began):
            print(line)
        _title("Read it yourself, in a directory that does not exist yet", "remote-fetch demo --copy tier")
    return 0


def _copy(bucket: Path, directory: str) -> int:
    if "://" in directory:
        raise ConfigError(f"--copy: {directory} is a URL", key="--copy", hint="Name a new directory of this machine")
    try:
        os.makedirs(directory)
        for path in sorted(bucket.rglob("*")):  # a directory comes before its files
            copied = Path(directory, path.relative_to(bucket))
            if path.is_dir():
                copied.mkdir()
            else:
                shutil.copyfile(path, copied)
    except OSError as error:
        raise ConfigError(
            f"--copy {directory}: {file_fault(error)}", key="--copy", hint="Name a new directory that can be written"
        ) from None
    print(f"{directory} holds the bucket. Read it:\n  remote-fetch ls --url {shlex.quote(directory)}")
    return 0


def _title(text: str, command: str) -> None:
    print(f"\n== {text}")
    if command:
        print(f"$ {command}")


def _plans(session: Session, isolation: IsolationLevel, partitions: list[int] | None) -> tuple[PartitionPlan, ...]:
    return plan_job(session, _TOPIC, start="earliest", end="latest", partitions=partitions, isolation=isolation)


def _read(session: Session, isolation: IsolationLevel) -> list[dict[str, Any]]:
    scan = Scan(session, _plans(session, isolation, [_PARTITION]), ROW_COLUMNS)
    return [row for batch in scan.batches() for row in batch.to_pylist()]


def _shown(row: dict[str, Any]) -> str:
    key = "null" if row["key"] is None else repr(row["key"])[2:-1]
    size = "null" if row["value"] is None else f"{len(row['value'])} bytes"
    return f"{row['offset']:>4}  {iso_time(row['timestampMs'])}  {key[:10]:10}  {size}"

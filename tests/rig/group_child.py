"""A member of a group in a separate process, which kills itself during its work.

    python -m tests.rig.group_child SETTING STYLE RECORDS

Rules of the file:

- The process kills itself by SIGKILL while its consumer's threads work, after it has printed every delivered record.
  So the delivered records are known, on a busy machine too.
- It has committed some records before that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from confluent_kafka import KafkaError, TopicPartition

from tests.rig import group_checker
from tests.rig.group_checker import Event
from tests.rig.group_members import Member, Setting, Style

__all__ = ["run_child"]

_TIMEOUT_S = 120


def run_child(name: str, setting: Setting, style: Style, records: int) -> list[Event]:
    """The events of a member that died after this number of records. Raises RuntimeError if it did not die."""
    arguments = [name, json.dumps(asdict(setting)), json.dumps(asdict(style)), str(records)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.rig.group_child", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the member ended with {done.returncode}:\n{done.stdout[-500:]}{done.stderr}")
    return [_event(json.loads(line)) for line in done.stdout.splitlines()]


def _event(said: list[object]) -> Event:
    name, *values = (tuple(one) if isinstance(one, list) else one for one in said)
    event: Event = getattr(group_checker, str(name))(*values)
    return event


class _Told(list[Event]):
    """Prints each event at once. Ends the process after a number of records and a commit."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self._left = records
        self._has_committed = False

    def append(self, event: Event) -> None:
        """Print an event."""
        os.write(1, json.dumps([type(event).__name__, *event]).encode() + b"\n")
        self._left -= isinstance(event, group_checker.Delivered)
        self._has_committed |= isinstance(event, group_checker.Committed)
        self._end_in_time()

    def on_commit(self, error: KafkaError | None, _partitions: list[TopicPartition]) -> None:
        """As the consumer's `on_commit`."""
        self._has_committed |= error is None
        self._end_in_time()

    def _end_in_time(self) -> None:
        if self._left <= 0 and self._has_committed:
            os.kill(os.getpid(), signal.SIGKILL)


def _main() -> None:
    name, setting, style, records = sys.argv[1:]
    given = json.loads(setting)
    setting_given = Setting(**{**given, "topics": tuple(given["topics"])})
    told = _Told(int(records))
    member = Member(name, setting_given, Style(**json.loads(style)), told, lambda _text: None, on_commit=told.on_commit)
    member.start()
    member.join(_TIMEOUT_S)
    member.check()


if __name__ == "__main__":
    _main()

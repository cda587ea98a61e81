"""Runs a group in a separate process, for groups with librdkafka's own consumers.

    python -m tests.rig.group_apart BOOTSTRAP SETTING KINDS SEED SECONDS

Rules of the file:

- librdkafka 2.16 may abort the process, or hang, if a consumer is closed during a rebalance. Both are reported as
  findings, like those of the checker, and do not end the tests of the parent process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.rig.group_members import Setting
from tests.rig.group_run import GroupRun
from tests.rig.rig import Rig

__all__ = ["Ran", "run_apart"]

_FEWEST = 30
_TIMEOUT_S = 300
_SPARE_S = 30
_SHOWN_CHARS = 12_000

_ASSERTED = re.compile(r"^\*\*\* rdkafka_.*", re.MULTILINE)
_ABORTED = re.compile(
    r"\*\*\* rdkafka_\w+\.c:\d+:\w+: assert: "
    r"|StaysInside: "
    # As faulthandler shows a thread that is inside the parent's `close`.
    r'|first\):\n  File "[^"]*(consumer/consumer\.py", line \d+ in close|group_members\.py", line \d+ in run)\n'
)


class Ran(NamedTuple):
    """The findings of a run, the number of events by kind, and the events."""

    wrong: list[str]
    counts: Counter[str]
    log: list[str]

    @property
    def was_aborted(self) -> bool:
        """Whether an assertion of librdkafka ended the process, or a `close` did not return."""
        return any(_ABORTED.search(one) for one in self.wrong)


def run_apart(rig: Rig, setting: Setting, kinds: Sequence[str], seed: int, seconds: float) -> Ran:
    """Run a group in another process. If that process fails or dies, this is a finding too."""
    arguments = [rig.bootstrap, json.dumps(asdict(setting)), json.dumps(list(kinds)), str(seed), str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.rig.group_apart", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S + seconds,
        check=False,
    )
    if done.returncode:
        asserted = _ASSERTED.findall(done.stderr)  # it stands before the stacks of many threads
        said = "\n".join([*asserted, done.stdout[-_SHOWN_CHARS:], done.stderr[-_SHOWN_CHARS:]])
        return Ran([f"the process ended with {done.returncode}:\n{said}"], Counter(), [])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Ran(found["wrong"], Counter(found["counts"]), found["log"])


class _BrokerOfAnother:
    """The part of a rig that a run needs. The rig itself runs in another process."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def until(self, what: str, condition: Callable[[], object], timeout_s: float = _TIMEOUT_S / 2) -> None:
        """As `Rig.until`, without the broker's log."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not within {timeout_s} s: {what}")
            time.sleep(0.1)


def _main() -> None:
    bootstrap, setting, kinds, seed, seconds = sys.argv[1:]
    faulthandler.enable()  # shows the threads if librdkafka aborts the process, or does not let it end
    faulthandler.dump_traceback_later(_TIMEOUT_S - _SPARE_S + float(seconds), exit=True)
    given = json.loads(setting)
    rig: Any = _BrokerOfAnother(bootstrap)
    run = GroupRun(rig, Setting(**{**given, "topics": tuple(given["topics"])}), json.loads(kinds), int(seed))
    wrong = run.run(_FEWEST, time.monotonic() + float(seconds))
    print(json.dumps({"wrong": wrong, "counts": run.counts, "log": run.log}), flush=True)
    os._exit(0)  # a consumer whose `close` never returns must not keep the process


if __name__ == "__main__":
    _main()

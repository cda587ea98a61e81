"""A second run, alone, for the few tests that failed beside all others.

Rules of the file:

- A busy machine may stand still for longer than a test allows. So what failed is asked once more, by one process that
  has the machine for itself. A test that fails twice fails the session.
- The first failure stays in the report, and the second run's stands below it. Nothing is hidden.
- There is none if more tests failed than the option allows, if a process ended, if a test file could not be read, if
  the session was stopped, or if a test was skipped that may not be: then something is broken, or tests did not run.
- There is none for a random search on a broker (`soak`): it would try something else. Hypothesis tries again what
  failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

__all__ = ["SecondRun"]

_PHASES = frozenset(("setup", "call", "teardown"))
_LONGEST_TEST_S = 300
"""A test that hangs ends its process after this time, with the place of every thread. The longest test takes 100 s."""
_LONGEST_S = 600
"""A second run that takes longer has failed."""


class SecondRun:
    """Notes which tests failed, and runs them again if there are at most `most` and `may_pass` says so.

    It is for the process that reports, not for the processes of xdist that run tests.
    """

    def __init__(self, most: int, may_pass: Callable[[], bool]) -> None:
        self._most = most
        self._may_pass = may_pass
        self._failed: dict[str, None] = {}  # in their order
        self._may_repeat = True
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Note the session, whose exit code the second run decides."""
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failed test. A process that ended has a report of another phase."""
        if report.failed:
            self._failed[report.nodeid] = None
            self._may_repeat = self._may_repeat and report.when in _PHASES and "soak" not in report.keywords

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a test file that could not be read."""
        self._may_repeat = self._may_repeat and not report.failed

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Run what failed once more, after all other processes have ended and the report is written."""
        session = self._session
        if session is None or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        was_stopped = session.shouldstop or session.shouldfail
        if was_stopped or not self._may_repeat or not self._may_pass() or not 1 <= len(self._failed) <= self._most:
            return
        plugins = [word for name in config.option.plugins for word in ("-p", name)]
        print(f"\nOnce more, alone, what failed ({len(self._failed)}):", *self._failed, sep="\n  ", flush=True)
        limit = ("-o", f"faulthandler_timeout={_LONGEST_TEST_S}", "-o", "faulthandler_exit_on_timeout=true")
        command = [sys.executable, "-m", "pytest", *plugins, *limit, *self._failed]
        environment = {**os.environ, "REMOTE_FETCH_STRICT": "1"}  # what is skipped the second time has not passed
        try:
            again = subprocess.run(command, cwd=config.rootpath, env=environment, check=False, timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            print(f"\nThe second run did not end in {_LONGEST_S} s. The tests have failed.", flush=True)
        else:
            session.exitstatus = again.returncode

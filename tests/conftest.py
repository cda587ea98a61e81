"""The behaviour of every test session, whichever tests it runs.

Rules of the file:

- It has only the behaviour of the whole session, so that a test file can be read without this one.
- It has no fixtures except the shared brokers of tests/rig/brokers.py, the Spark session of tests/spark/session.py, the
  directory of temporary files, the watch over threads, and the limits that the product is shipped with.

* A skipped test is listed with its reason. Where `REMOTE_FETCH_STRICT=1` says that every tool is meant to be at hand,
  as in CI, it fails the session.
* `--workload-seconds` and `--workload-seed` are options of the random workload, `--stream-restarts` of Spark's streams,
  `--fault-schedules` of the random faults of a store. Their defaults are short; `make soak` gives long ones.
* A test that starts a broker or Spark is marked `java`. `make test FAST=1` leaves it out.
* A test on the oldest broker is marked `scheduled`, unless it is marked `each_version`: `make test` leaves it to
  `make test-all`.
* A failed test shows what its broker said.
* The shared broker of the newest version is stopped if the next test file is one of those without brokers.
* With `--second-run N`, as in `make test`, at most N failed tests are run once more, alone (second_run.py).
* A test that leaves threads of ours behind fails.
* Garbage is collected after the tests were collected, and not while they are. Later, what is left then is passed over.
* A random search has no deadline, and a test that sets no limit waits for a store as long as patience.py says.
* The head of the session names the variant of the decoder that the tests use.
* The files that take longest come first, so that no process is left alone with one of them at the end.
* With several processes, process_groups.py says which files a process runs.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence

import pytest

from tests.own_threads import native_threads, tasks, watch_threads
from tests.patience import SHIPPED, UNHURRIED, set_limits
from tests.process_groups import group_of, group_scheduling, has_brokers
from tests.rig.brokers import needs_broker, new_topic, newest_broker, rig, rig_39, rig_43, stop_newest
from tests.rig.rig import VERSIONS, Rig
from tests.searches import take_time
from tests.second_run import SecondRun
from tests.spark.session import spark

__all__ = ["needs_broker", "new_topic", "newest_broker", "rig", "rig_39", "rig_43", "spark"]


_LAST_THREADS_S = 60.0
_LONG_FILES = (
    "test_spark_streaming.py",
    "test_backfill_job.py",
    "test_consumer_faults.py",
    "test_read.py",
    "test_spark.py",
    "test_groups.py",
    "test_workload.py",
    "test_fallbacks.py",
    "test_consumer_causes.py",
    "test_vended.py",
    "test_readme.py",
    "test_restore.py",
    "test_broker_locator.py",
    "test_adversity.py",
    "test_cloud_contracts.py",
    "test_table_job.py",
    "test_signals.py",
    "test_kafka_clients.py",
    "test_codecs.py",
    "test_audit.py",
    "test_resources.py",
)
"""By what they took when all were measured in one run. The last seven have no brokers: each computes for 8 to 20 s, or
waits for 30 s as test_kafka_clients.py does. The other files come in a random order, and take a few seconds each."""
_JAVA = frozenset(("needs_broker", "rig", "rig_39", "rig_43", "spark"))
"""Fixtures that start a broker or Spark, now or when they are asked to."""
_OLDEST = ("rig_39", *VERSIONS[1:])
"""The parameters of a test that mean the oldest broker, by its fixture or by its version."""
_SLOW_FOLDERS = ("rig", "contract", "stores", "spark", "golden")


@pytest.fixture(autouse=True, scope="session")
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files are among pytest's, which go. The environment stays: child processes share the lock of ports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """A test leaves no thread behind. It closes the objects that it opens, and a closed object has no threads."""
    threads, before = watch_threads(), tasks()
    yield
    deadline_s = time.monotonic() + _LAST_THREADS_S
    while left := [*(one.name for one in threads()), *(f"native {task}" for task in native_threads(before))]:
        assert time.monotonic() < deadline_s, f"threads that were left behind: {', '.join(left)}"
        time.sleep(0.01)


@pytest.fixture
def shipped_limits() -> Iterator[None]:
    """The defaults for users, in a test that is about them."""
    set_limits(SHIPPED)
    yield
    set_limits(UNHURRIED)


class SkippedTests:
    """Collects what was skipped and why, and turns it into a failure where nothing may be skipped."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.reasons: list[tuple[str, str]] = []

    def may_pass(self) -> bool:
        """Whether the session may pass, as far as skipped tests say."""
        return not (self.strict and self.reasons)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a skipped test; an expected failure is not one."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self.reasons.append((report.nodeid, _reason(report)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that was skipped as a whole."""
        if report.skipped:
            self.reasons.append((report.nodeid, _reason(report)))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session that would have passed."""
        if not self.may_pass() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why the session failed; without strictness pytest's own summary already has the reasons."""
        if not self.may_pass():
            terminalreporter.section("REMOTE_FETCH_STRICT: no test may be skipped here", red=True)
            for nodeid, reason in self.reasons:
                terminalreporter.line(f"{nodeid}: {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the random workload of the broker tests runs, and which one it is."""
    workload = parser.getgroup("workload", "the random workloads on a real broker (tests/rig)")
    workload.addoption(
        "--workload-seconds", type=float, default=4, metavar="S", help="how long it runs on each version (4)"
    )
    workload.addoption(
        "--workload-seed",
        type=int,
        default=None,
        metavar="N",
        help="repeat the steps of this seed (default: a new one)",
    )
    workload.addoption(
        "--stream-restarts",
        type=int,
        default=3,
        metavar="N",
        help="how often the test of Spark streams stops one and starts it again (3)",
    )
    parser.getgroup("faults", "random faults of a store (tests/stores/test_faults.py)").addoption(
        "--fault-schedules", type=int, default=24, metavar="N", help="how many schedules are run (24)"
    )
    parser.getgroup("general").addoption(
        "--second-run", type=int, default=0, metavar="N", help="run at most N failed tests once more, alone (0)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start watching for skipped tests, and let random searches and stores take their time."""
    take_time()
    set_limits(UNHURRIED)
    strict = os.environ.get("REMOTE_FETCH_STRICT", "") not in ("", "0")
    skipped = SkippedTests(strict=strict)
    config.pluginmanager.register(skipped, "skipped-tests")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondRun(config.getoption("second_run"), skipped.may_pass), "second-run")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage once, when all tests are collected: else a quarter of the time goes there, in each process.

    The collector then passes over what is left: a million objects of tests and libraries, half a second each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()  # so that no test is blamed for what collecting left behind
        gc.freeze()
        atexit.register(gc.unfreeze)  # DuckDB complains if it is not collected in the end


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs Java, and what is left to the schedule."""
    if isinstance(item, pytest.Function) and not _JAVA.isdisjoint(item.fixturenames):
        item.add_marker("java")
    callspec = getattr(item, "callspec", None)
    values = () if callspec is None or item.get_closest_marker("each_version") else callspec.params.values()
    if any(isinstance(value, str) and value in _OLDEST for value in values):
        item.add_marker("scheduled")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Stop the shared broker after the last of some test files with brokers. If a later test asks for it, it starts."""
    done = yield
    if nextitem is not None and nextitem.path != item.path and not has_brokers(group_of(nextitem.nodeid)):
        stop_newest(item.config)
    return done


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Share out the files of `--dist loadfile` as process_groups.py says."""
    return group_scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, then the folders whose tests start servers, whatever order they have been given."""
    items.sort(key=lambda item: (_place(item.path.name, _LONG_FILES), _place(item.path.parent.name, _SLOW_FOLDERS)))


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def pytest_report_header() -> str:
    """Name the variant of the decoder at the top of the session."""
    native = importlib.util.find_spec("remote_fetch.decode._native")
    return f"decoder: {'plain Python' if native is None else 'native'}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what the brokers of a failed test said into its report."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        rigs = {id(found): found for found in item.funcargs.values() if isinstance(found, Rig)}
        for found in rigs.values():
            for node in found.nodes.values():
                report.sections.append((f"Kafka {found.version}, end of {node.log_file}", node.log_tail()))
    return report

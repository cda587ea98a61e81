"""The brokers that tests share. The first test that asks for one starts it.

Rules of the file:

- The broker of the newest version lives until the process comes to the test files without brokers (process_groups.py).
  The oldest one ends with the test file that started it: in `make test` two files use it. A broker at rest takes a
  twentieth of a core. One that was stopped starts again for the next test that asks for it.
- The topics of a test file end with the file. A broker at rest with 60 tiered topics takes a tenth of a core: twice a
  second it looks at each for what it has to move to the tier.
- A test that changes a broker's behaviour starts its own broker.
- On a shared broker a test makes topics with unique names.
- A shared broker has access control. A test that gives a principal rights takes them away again.
- If no broker can be started, its tests are skipped with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from tests.rig.artifacts import missing_tool
from tests.rig.class_archives import make_class_archive
from tests.rig.rig import VERSIONS, Rig, single
from tests.rig.topics import delete_passing_topics

__all__ = [
    "FASTER_RESTARTS",
    "SharedBroker",
    "needs_broker",
    "new_topic",
    "newest_broker",
    "rig",
    "rig_39",
    "rig_43",
    "stop_newest",
]

FASTER_RESTARTS = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}
"""A controller waits for a killed broker this long before it accepts the restarted broker.

Three heartbeats a second take a fifth of the processor time of a broker at rest.
"""

_AT_REST = {"metadata.max.idle.interval.ms": "0"}
"""The controller writes no record to its log twice a second if nothing happens. A shared broker mostly waits."""
_RIGS = {"rig_43": VERSIONS[0], "rig_39": VERSIONS[-1]}
_EACH = sorted(_RIGS)[-len(VERSIONS) :]


class SharedBroker:
    """A broker that `start` makes when `running` is called, unless it runs."""

    def __init__(self, start: Callable[[], AbstractContextManager[Rig]]) -> None:
        self._start = start
        self._rig: Rig | None = None
        self._end = ExitStack()

    def running(self) -> Rig:
        """The broker, started if it does not run."""
        if self._rig is None:
            self._rig = self._end.enter_context(self._start())
        return self._rig

    def stop(self) -> None:
        """Stop the broker if it runs."""
        self._rig = None
        self._end.close()


_NEWEST = pytest.StashKey[SharedBroker]()


def stop_newest(config: pytest.Config) -> None:
    """Stop the shared broker of the newest version if it runs."""
    broker = config.stash.get(_NEWEST, None)
    if broker is not None:
        broker.stop()


@pytest.fixture(scope="session")
def needs_broker() -> None:
    """Skip a test that starts brokers if no broker can be started here."""
    reason = missing_tool()
    if reason is not None:
        pytest.skip(reason)


@contextmanager
def _shared(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp(name)
    with single(folder, _RIGS[name], access_control=True, properties={**FASTER_RESTARTS, **_AT_REST}) as running:
        running.wait_tier_ready()
        yield running


@pytest.fixture(scope="session")
def newest_broker(
    request: pytest.FixtureRequest, needs_broker: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedBroker]:
    """The process's broker of the newest version. Tests ask for `rig_43`.

    To make the archive takes as long as it saves in three starts. In `make test` the oldest version is started twice.
    """
    make_class_archive(_RIGS["rig_43"])
    broker = SharedBroker(lambda: _shared("rig_43", tmp_path_factory))
    request.config.stash[_NEWEST] = broker
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def rig_43(newest_broker: SharedBroker) -> Iterator[Rig]:
    """The process's broker of the newest version, which the test file leaves without its topics."""
    running = newest_broker.running()
    yield running
    delete_passing_topics(running)


@pytest.fixture(scope="module")
def rig_39(
    request: pytest.FixtureRequest, needs_broker: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """The test file's broker of the oldest version. If there is only one version, it is the same broker."""
    if len(VERSIONS) == 1:
        yield request.getfixturevalue("rig_43")
    else:
        with _shared("rig_39", tmp_path_factory) as running:
            yield running


@pytest.fixture(params=_EACH)
def rig(request: pytest.FixtureRequest) -> Rig:
    """Each shared broker in turn."""
    found: Rig = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def new_topic() -> Callable[[str], str]:
    """Makes a unique topic name from a name that describes the topic."""
    numbers = itertools.count(1)
    return lambda name: f"{name}-{next(numbers)}"

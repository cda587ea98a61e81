"""The brokers that tests share. The first test that asks for one starts it.

Rules of the file:

- The broker of the newest version lives until the session ends. The oldest one ends with the test file that started it:
  in `make test` two files use it, and a broker at rest takes a twentieth of a core.
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

import pytest

from tests.rig.artifacts import missing_tool
from tests.rig.class_archives import make_class_archive
from tests.rig.rig import VERSIONS, Rig, single
from tests.rig.topics import delete_passing_topics

__all__ = ["FASTER_RESTARTS", "needs_broker", "new_topic", "newest_broker", "rig", "rig_39", "rig_43"]

FASTER_RESTARTS = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "1000"}
"""A controller waits for a killed broker this long before it accepts the restarted broker.

Three heartbeats a second take a fifth of the processor time of a broker at rest.
"""

_AT_REST = {"metadata.max.idle.interval.ms": "0"}
"""The controller writes no record to its log twice a second if nothing happens. A shared broker mostly waits."""
_RIGS = {"rig_43": VERSIONS[0], "rig_39": VERSIONS[-1]}
_EACH = sorted(_RIGS)[-len(VERSIONS) :]


@pytest.fixture(scope="session")
def needs_broker() -> None:
    """Skip a test that starts brokers if no broker can be started here."""
    reason = missing_tool()
    if reason is not None:
        pytest.skip(reason)


def _shared(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp(name)
    with single(folder, _RIGS[name], access_control=True, properties={**FASTER_RESTARTS, **_AT_REST}) as running:
        running.wait_tier_ready()
        yield running


@pytest.fixture(scope="session")
def newest_broker(needs_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The session's broker of the newest version. Tests ask for `rig_43`.

    To make the archive takes as long as it saves in three starts. In `make test` the oldest version is started twice.
    """
    make_class_archive(_RIGS["rig_43"])
    yield from _shared("rig_43", tmp_path_factory)


@pytest.fixture(scope="module")
def rig_43(newest_broker: Rig) -> Iterator[Rig]:
    """The session's broker of the newest version, which the test file leaves without its topics."""
    yield newest_broker
    delete_passing_topics(newest_broker)


@pytest.fixture(scope="module")
def rig_39(
    request: pytest.FixtureRequest, needs_broker: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """The test file's broker of the oldest version. If there is only one version, it is the same broker."""
    if len(VERSIONS) == 1:
        yield request.getfixturevalue("rig_43")
    else:
        yield from _shared("rig_39", tmp_path_factory)


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

"""Fixtures of the contract suite: every test runs for each of the three kinds of consumer.

Rules of the file:

- A test states the behaviour of the plain consumer, so it has to hold for `plain` too.
- The brokers are those of the rig. The tests share the topics, because no test writes to them.
- `on` runs with every change.
- `off` runs with every change if the test is marked `switched_off`. tests/consumer/test_switched_off.py shows without
  a broker that every method is the parent's.
- `plain` proves the suite against confluent_kafka, which a change of this project does not touch.
- Every other test is marked `scheduled`: `make test` leaves it to `make test-all`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.kinds import KINDS, Consumers, Kind
from tests.contract.material import Material, make_material
from tests.rig.rig import Rig


@pytest.fixture
def rig(rig_43: Rig) -> Rig:
    """The broker; a file that is to run on the oldest one too overrides this."""
    return rig_43


@pytest.fixture(scope="session")
def materials() -> dict[str, Material]:
    """The topics of each broker that has them already, by its address."""
    return {}


@pytest.fixture
def material(rig: Rig, materials: dict[str, Material]) -> Material:
    """The topics on the broker of this test."""
    if rig.bootstrap not in materials:
        materials[rig.bootstrap] = make_material(rig)
    return materials[rig.bootstrap]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of consumer in turn."""
    found: Kind = request.param
    return found


@pytest.fixture
def consumers(rig: Rig, kind: Kind) -> Iterator[Consumers]:
    """Makes consumers of one kind."""
    made = Consumers(rig, kind)
    try:
        yield made
    finally:
        made.close()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to the schedule what a change of ours can hardly break."""
    callspec = getattr(item, "callspec", None)
    kind = None if callspec is None else callspec.params.get("kind")
    if not isinstance(kind, Kind) or kind.enabled:
        return
    if kind.enabled is None or item.get_closest_marker("switched_off") is None:
        item.add_marker("scheduled")

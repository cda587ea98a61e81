"""Fixtures of the contract suite: every test runs for each of the three kinds of consumer.

Rules of the file:

- A test states the behaviour of the plain consumer, so it has to hold for `plain` too.
- The brokers are those of the rig. The tests share the topics, because no test writes to them.
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
    """The topics of each broker that has them already, by its version."""
    return {}


@pytest.fixture
def material(rig: Rig, materials: dict[str, Material]) -> Material:
    """The topics on the broker of this test."""
    if rig.version not in materials:
        materials[rig.version] = make_material(rig)
    return materials[rig.version]


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

"""remote.locator=broker on real brokers: old ones as they are, and behind a double that speaks KIP-1254's Fetch.

Rules of the file:

- The broker is the oracle: what comes through the locator is what a consumer gets from the broker itself.
- Each row of KIP-1254's tables on compatibility and fallback is a test with that row's words in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rig import topics
from tests.rig.answers import assert_is_the_brokers
from tests.rig.location_broker import LocationBroker, located
from tests.rig.rig import Rig
from tests.rig.test_read import ISOLATIONS, config_of, from_store, mixed_topic

OFF = "remote.locator=broker is off, and the brokers give all records: "


@pytest.fixture(scope="module")
def tiered() -> Callable[[Rig], str]:
    """The one topic of this module on a rig: every codec, transactions that end each way, all of it in the tier."""
    made: dict[str, str] = {}

    def topic_of(rig: Rig) -> str:
        if rig.version not in made:
            mixed_topic(rig, "located")
            topics.wait_tiered(rig, "located")
            made[rig.version] = "located"
        return made[rig.version]

    return topic_of


@pytest.fixture
def double(rig_43: Rig) -> Iterator[LocationBroker]:
    with located(rig_43) as running:
        yield running


def through(double: LocationBroker, **more: Any) -> dict[str, Any]:
    """The configuration of a reader that knows the double alone."""
    return config_of(double.rig, remote_locator="broker", **more) | {"bootstrap.servers": double.bootstrap}


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("tags", [(5, 6, 7), ()], ids=["all fields", "the KIP's fields alone"])
def test_records_come_from_the_store_by_the_leaders_answers(
    rig_43: Rig, double: LocationBroker, tiered: Callable[[Rig], str], isolation: str, tags: tuple[int, ...]
) -> None:
    topic = tiered(rig_43)
    double.tags = tags
    expected = topics.broker_records(rig_43, topic, 0, isolation)
    middle = expected[len(expected) // 2].offset
    for start in (0, middle, middle + 1):
        found, report = from_store(through(double), topic, isolation, start=start)
        assert_is_the_brokers(rig_43, topic, isolation, found, [each for each in expected if each.offset >= start])
        assert (report.broker_records, report.fallbacks) == (0, {})
        assert report.records == len(found)
    assert double.locations > 0
    assert all(is_requested and formats == ("ApacheKafkaV1",) for _, is_requested, formats in double.requests)

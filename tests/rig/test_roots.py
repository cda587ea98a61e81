"""A plug-in chooses the store of each segment (KIP-917, use 1), with a real broker, an S3 server and a directory.

Rules of the file:

- The broker knows the roots from its plug-in, and the readers know them from the segments' custom metadata.
- The broker's default limit of 128 bytes for custom metadata holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from remote_fetch.session.session import Session
from tests.rig import topics
from tests.rig.artifacts import MissingTool
from tests.rig.consumer_faults import Delivered
from tests.rig.plugins import compiled
from tests.rig.rig import VERSIONS, Rig, single
from tests.rig.test_read import ISOLATION_OF_A_CHANGE, from_store, mixed_topic
from tests.stores.s3_server import BUCKET, S3Server, s3_server

TOPIC = "by-two-roots"
_BROKERS_LIMIT = 128
"""The default of `remote.log.metadata.custom.metadata.max.bytes`."""


class Roots(NamedTuple):
    """A broker whose plug-in writes to the bucket of `s3` and to `directory`, with a tiered topic."""

    rig: Rig
    s3: S3Server
    directory: Path

    def config(self, *, roots: str | None = None) -> dict[str, str]:
        """The configuration of a reader of the bucket. `roots` is its `remote.storage.roots`.

        By default that is `directory`.
        """
        own = {"remote.storage.layout": "url", "remote.storage.roots": roots or self.directory.as_uri()}
        url = {"remote.storage.url": f"s3://{BUCKET}"}
        return {"bootstrap.servers": self.rig.bootstrap, **self.s3.configs(), **url, **own}


pytestmark = pytest.mark.scheduled


@pytest.fixture(scope="module")
def two_roots(needs_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roots]:
    """The broker, the S3 server over one of the plug-in's directories, and a topic that is only in the tier."""
    folder = tmp_path_factory.mktemp("two-roots")
    bucket, directory = folder / "bucket", folder / "b"
    directory.mkdir()
    with ExitStack() as running:
        try:
            classes = compiled("TwoRoots", folder / "classes", VERSIONS[0])
            s3 = running.enter_context(s3_server(folder / "s3", bucket))
        except MissingTool as error:
            pytest.skip(str(error))
        properties = {
            "remote.log.storage.manager.class.name": "TwoRoots",
            "remote.log.storage.manager.class.path": f"{classes}/",
            "rsm.config.roots": f"{bucket}=s3://{BUCKET},{directory}={directory.as_uri()}",
        }
        rig = running.enter_context(single(folder, VERSIONS[0], properties=properties))
        rig.wait_tier_ready()
        mixed_topic(rig, TOPIC)
        yield Roots(rig, s3, directory)


def test_both_roots_have_segments_whose_locations_fit_the_brokers_limit(two_roots: Roots) -> None:
    with Session.open(two_roots.config()) as session:
        (partition,) = session.locator.partitions(TOPIC)
        segments = session.locator.timeline(partition).segments
    locations = [(segment.custom_metadata or b"").decode() for segment in segments]
    for root in (f"s3://{BUCKET}/", f"{two_roots.directory.as_uri()}/"):
        assert sum(location.startswith(root) for location in locations) > 1
    assert max(len(location.encode()) for location in locations) <= _BROKERS_LIMIT


@pytest.mark.parametrize("isolation", ISOLATION_OF_A_CHANGE)
def test_the_records_are_the_brokers(two_roots: Roots, isolation: str) -> None:
    expected = topics.broker_records(two_roots.rig, TOPIC, 0, isolation)
    found, report = from_store(two_roots.config(), TOPIC, isolation)
    assert found == expected
    assert (report.broker_records, report.fallbacks) == (0, {})
    config = {**two_roots.config(), "isolation.level": isolation, "group.id": f"roots-{isolation}"}
    end = topics.offsets(two_roots.rig, TOPIC, 0).latest
    with Delivered.by(config, TOPIC, 0) as delivered:
        delivered.to_the_end(end)
        assert delivered.records == expected
        assert not any(delivered.through_broker)


def test_without_the_root_the_broker_answers_for_its_segments(two_roots: Roots, tmp_path: Path) -> None:
    """The locations are refused, none of their bytes is read, and the records are the same."""
    expected = topics.broker_records(two_roots.rig, TOPIC, 0, "read_committed")
    config = two_roots.config(roots=tmp_path.as_uri())
    found, report = from_store(config, TOPIC, "read_committed")
    assert found == expected
    assert report.broker_records > 0
    assert set(report.fallbacks) == {"format"}

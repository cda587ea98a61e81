"""The parts of a session that its locators are opened with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import StorageDenied
from remote_fetch.fetch.credentials import Renewal
from remote_fetch.locate import location_channel
from remote_fetch.locate.cluster import Cluster
from remote_fetch.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from remote_fetch.observe import Event
from remote_fetch.session.configured_locator import ConfiguredLocator
from remote_fetch.session.locator_kinds import open_broker_locator, open_listing
from remote_fetch.session.storage import Storage
from tests.scan.bucket import Bucket, plain_log


class Expired(Bucket):
    """Refuses each listing."""

    refreshed = 0

    def refresh_credentials(self) -> None:
        self.refreshed += 1

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        raise StorageDenied("expired")


class Lost(Bucket):
    """Has other files of its segments, but no log."""

    def list_segments(self, topic: str | None = None) -> Iterator[RemoteLogSegmentMetadata]:
        for one in super().list_segments(topic):
            yield replace(one, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)


def test_a_listing_and_a_read_look_credentials_up_together() -> None:
    """A read has just looked them up. So a refusal of the listing has another cause."""
    fetcher = Expired()
    reader = SimpleNamespace(renewal=Renewal(fetcher), range_bytes=1)
    storage = cast(Storage, SimpleNamespace(reader=reader, settings=SimpleNamespace(max_batch_bytes=1)))
    assert reader.renewal.refresh_after_refusal(0)
    with pytest.raises(StorageDenied):
        open_listing(fetcher, storage).partitions("topic")
    assert fetcher.refreshed == 1


@pytest.mark.parametrize("brokers", [None, SimpleNamespace(cluster=None)])
def test_a_lost_log_is_told_if_no_broker_gives_its_records(brokers: Any) -> None:
    told: list[Event] = []
    bucket = Lost(plain_log().segments()[:1])
    reader = SimpleNamespace(renewal=Renewal(bucket), range_bytes=1)
    settings = SimpleNamespace(max_batch_bytes=1)
    storage = cast(Storage, SimpleNamespace(reader=reader, settings=settings, observe=told.append))
    opened = ConfiguredLocator(Config.parse({"remote.locator": "listing"}), bucket, storage, shared=False)
    locator = opened.open(None, brokers)
    assert locator.timeline(bucket.at(0).topic_id_partition).segments == ()
    assert len(told) == (brokers is None)


def test_leaders_are_asked_at_the_addresses_of_brokers_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python waits for its whole timeout if the address of the configuration that it tries is silent."""
    given: list[Callable[[], Mapping[str, Any]]] = []
    monkeypatch.setattr(location_channel, "LocationChannel", lambda properties, *_, **__: given.append(properties))
    cluster = SimpleNamespace(properties={"bootstrap.servers": "silent:1"}, contact_properties={})
    open_broker_locator(Config.parse({}).settings, cast(Cluster, cluster), lambda _: None)
    cluster.contact_properties = {"bootstrap.servers": "a:1"}
    assert given[0]() == {"bootstrap.servers": "a:1"}

"""Sessions with a service: what has to be configured, who gets URLs, whose credentials are used."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.spi import LocationSource
from remote_fetch.locate.service_locator import ServiceLocator
from remote_fetch.session.configured_locator import Planned
from remote_fetch.session.service import open_service
from remote_fetch.session.session import Session
from remote_fetch.testing.stores import SegmentStore
from tests.locate.scripted_service import Reply, scripted_service

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "s3cret",
}
SERVICE = {"remote.locator": "service", "remote.locator.url": "http://127.0.0.1:1"}
BROKERS = {"bootstrap.servers": "127.0.0.1:1"}


class Taker(SegmentStore):
    """A fetcher that reads URLs."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[LocationSource] = []

    def take_locations(self, source: LocationSource) -> None:
        self.sources.append(source)


def config(**more: Any) -> Config:
    return Config.parse(
        {**SERVICE, **BROKERS, **SASL, **{name.replace("_", "."): value for name, value in more.items()}}
    )


def test_without_a_service() -> None:
    assert open_service(Config.parse({"remote.locator.url": "http://127.0.0.1:1"}), Taker()) is None


@pytest.mark.parametrize(
    ("given", "key", "text"),
    [
        ({**BROKERS, **SASL, "remote.locator": "service"}, "remote.locator.url", r"needs remote\.locator\.url"),
        ({**SERVICE, **SASL}, "remote.locator", r"needs bootstrap\.servers"),
        ({**SERVICE, **BROKERS}, "security.protocol", "no credentials"),
        ({**SERVICE, **BROKERS, **SASL, "remote.locator.url": "http://host"}, "remote.locator.url", "in the clear"),
    ],
)
def test_what_a_service_needs(given: dict[str, str], key: str, text: str) -> None:
    fetcher = Taker()
    with pytest.raises(ConfigError, match=text) as raised:
        Session(Config.parse(given), fetcher)
    assert raised.value.key == key
    assert fetcher.sources == []
    with pytest.raises(ConfigError, match=text):
        Session.open({**given, "remote.storage.url": "/tier"})


def test_the_fetcher_gets_urls_of_the_service() -> None:
    with scripted_service(lambda path: Reply(body=b'{"layout": "plain"}')) as service:
        fetcher = Taker()
        with Session(config(remote_locator_url=service.url), fetcher) as session:
            assert session.configured_locator.name == ServiceLocator.__name__
            (source,) = fetcher.sources
            assert session.answered_s == 0
            assert source.layout() == ("plain", {})
            assert session.answered_s > 0


def test_the_fetcher_of_a_plan_gets_them_too() -> None:
    fetcher = Taker()
    with Session(config(), fetcher, planned=Planned((), frozenset(), {})):
        assert len(fetcher.sources) == 1


def test_a_storage_of_the_clients_own(tmp_path: Path) -> None:
    """A client with a key to the bucket needs no READ on the metadata topic."""
    with Session.open({**SERVICE, **BROKERS, **SASL, "remote.storage.url": str(tmp_path)}) as session:
        assert session.configured_locator.name == ServiceLocator.__name__


@pytest.mark.parametrize(
    ("own", "user"),
    [
        ({}, "you"),
        ({"remote.locator.sasl.username": "service-user", "remote.locator.sasl.password": "p"}, "service-user"),
    ],
)
def test_other_credentials(own: dict[str, str], user: str) -> None:
    with scripted_service(lambda path: Reply(body=b'{"layout": "plain"}')) as service:
        fetcher = Taker()
        given = {**SERVICE, **BROKERS, **SASL, **own, "remote.locator.url": service.url}
        with Session(Config.parse(given), fetcher) as session:
            session.set_sasl_credentials("you", "other")
            fetcher.sources[0].layout()
    assert user == user_of(service.asked[0][1])


def user_of(headers: dict[str, str]) -> str:
    return base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode().partition(":")[0]

"""The service of a session with `remote.locator=service`: one client, for the locator and for the fetcher's URLs.

Rules of the file:

- The client is made when the session opens, also for a session with a plan: its fetcher needs URLs.
- The service is asked with the settings of the clients for the brokers. `remote.locator.<name>` sets them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.spi import LocationTaker, RemoteStorageFetcher
from remote_fetch.locate.locator import GuessingLocator

if TYPE_CHECKING:
    from remote_fetch.locate.cluster import Cluster
    from remote_fetch.locate.service_client import ServiceClient

__all__ = ["SERVICE", "Service", "open_service"]

SERVICE = "service"
"""The value of `remote.locator`."""


class Service:
    """The client of a service. `close` ends it."""

    def __init__(self, client: ServiceClient, *, has_own_user: bool) -> None:
        self._client = client
        self._has_own_user = has_own_user

    @property
    def answered_s(self) -> float:
        """When the service last answered (`time.monotonic`), 0 if it never has."""
        return self._client.answered_s

    def locator(self, cluster: Cluster, say: Callable[[str], None], recovered: Callable[[], None]) -> GuessingLocator:
        """The locator over the service, for topics of `cluster`."""
        from remote_fetch.locate.service_locator import ServiceLocator  # noqa: PLC0415 - librdkafka is loaded for it

        return ServiceLocator(cluster, self._client, say=say, recovered=recovered)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """New credentials of the clients for the brokers. Without effect on a user of the service's own."""
        if not self._has_own_user:
            self._client.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def open_service(config: Config, fetcher: RemoteStorageFetcher) -> Service | None:
    """The service of a configuration, None if it names another locator. The fetcher gets its URLs from it.

    Raises ConfigError, and MissingExtra.
    """
    settings = config.settings
    if settings.locator != SERVICE:
        return None
    key = "remote.locator.url"
    if settings.locator_url is None:
        raise ConfigError(f"remote.locator=service needs {key}", key=key)
    if "bootstrap.servers" not in config.librdkafka:
        raise ConfigError("remote.locator=service needs bootstrap.servers (-b)", key="remote.locator")
    from remote_fetch.locate.service_client import ServiceClient  # noqa: PLC0415 - librdkafka is loaded for it

    client = ServiceClient(
        settings.locator_url,
        config.for_locator(),
        connect_timeout_ms=settings.connect_timeout_ms,
        timeout_ms=settings.read_timeout_ms,
        backoff_ms=settings.retry_backoff_ms,
    )
    if isinstance(fetcher, LocationTaker):
        fetcher.take_locations(client)
    return Service(client, has_own_user="sasl.username" in config.locator)

"""The service of a session with `remote.locator=service`: one client, for the locator and for the fetcher's URLs.

Rules of the file:

- The client is made when the session opens, also for a session with a plan: its fetcher needs URLs.
- The service is asked with the settings of the clients for the brokers. `remote.locator.<name>` sets them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.spi import LocationTaker, RemoteStorageFetcher

if TYPE_CHECKING:
    from remote_fetch.locate.service_client import ServiceClient

__all__ = ["SERVICE", "open_service"]

SERVICE = "service"
"""The value of `remote.locator`."""


def open_service(config: Config, fetcher: RemoteStorageFetcher) -> ServiceClient | None:
    """The client of the service. None if the configuration names another locator. The fetcher gets its URLs from it.

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
    return client

"""Reads a broker's `server.properties` into a reader's configuration (`remote.storage.broker.properties`).

Rules of the file:

- A layout knows the storage managers whose objects it reads. It is found through its entry point.
- A key that the user set wins over the broker's file.
- Values are secrets. Messages hold names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import NamedTuple

from remote_fetch.config import Config
from remote_fetch.config.files import read_file
from remote_fetch.errors import ConfigError, RemoteFetchError
from remote_fetch.fetch.plugins import LAYOUTS_GROUP
from remote_fetch.fetch.spi import BrokerStorage, BrokerStorageReader
from remote_fetch.formats.properties import MAX_BYTES, parse_properties
from remote_fetch.hosts import is_path

__all__ = ["STORAGE_MANAGER", "Completed", "complete", "layout_of"]

STORAGE_MANAGER = "remote.log.storage.manager.class.name"
"""The broker's property that names its storage plug-in."""
_KEY = "remote.storage.broker.properties"
_OPTIONS = "remote.storage.options."
_PREFIX = "remote.log.storage.manager.impl.prefix"
_USUAL_PREFIX = "rsm.config."
_PROVIDERS = "config.providers"
_PROVIDED = re.compile(r"\$\{[^}]*:[^}]*\}")
"""In a value: a text that the broker gets elsewhere (KIP-297), as `${env:AWS_SECRET}` or `${file:/etc/secrets:key}`."""


class Completed(NamedTuple):
    """The result: the configuration, the keys from the broker's file, and the settings in it without a counterpart."""

    config: Config
    from_file: frozenset[str] = frozenset()
    unmapped: tuple[str, ...] = ()


def complete(config: Config) -> Completed:
    """Read the broker's file that a configuration names, if it names one. Raises ConfigError, UnsupportedFormat."""
    path = config.settings.storage_broker_properties
    if path is None:
        return Completed(config)
    data = read_file(path, key=_KEY, max_bytes=MAX_BYTES)
    try:
        properties = parse_properties(data)
    except ConfigError as error:
        raise ConfigError(f"{_KEY}={path}: {error.message}", key=_KEY) from None
    manager = properties.get(STORAGE_MANAGER, "").strip()
    if not manager:
        raise ConfigError(
            f"{_KEY}={path}: the file has no {STORAGE_MANAGER}, so the broker has no tier",
            key=_KEY,
            hint="Name the server.properties of a broker with remote.log.storage.system.enable=true",
        )
    prefix = properties.get(_PREFIX, _USUAL_PREFIX).strip()
    own = {name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)}
    try:
        found = _map(manager, own)
    except RemoteFetchError as error:
        error.message = f"{_KEY}={path}: {error.message}"
        raise
    configs, url = dict(found.configs), config.settings.storage_url
    if url is not None and is_path(url):  # a copy on this machine needs no options of the broker's store
        configs = {name: value for name, value in configs.items() if not name.startswith(_OPTIONS)}
    completed = config.under(configs)
    from_file = frozenset(configs) - config.ours().keys()
    if _PROVIDERS in properties:
        for name in sorted(from_file):
            if _PROVIDED.search(configs[name]):
                raise ConfigError(
                    f"{_KEY}={path}: the value of {name} is not in the file: the broker gets it from a config provider",
                    key=name,
                    hint=f"Set {name} too",
                )
    return Completed(completed, from_file, found.unmapped)


def layout_of(manager: str) -> str | None:
    """The name of the layout whose objects this storage manager (a Java class) writes. None if none is installed."""
    return next((name for name, layout in _readers() if manager in layout.storage_managers), None)


def _map(manager: str, properties: dict[str, str]) -> BrokerStorage:
    known: list[str] = []
    for _, layout in _readers():
        if manager in layout.storage_managers:
            return layout.from_broker_properties(properties)
        known += layout.storage_managers
    raise ConfigError(
        f"no layout is installed for the storage manager {manager!r:.200}; known are {', '.join(sorted(known))}",
        key=_KEY,
        hint="Set remote.storage.url and remote.storage.layout by hand",
    )


def _readers() -> Iterator[tuple[str, BrokerStorageReader]]:
    """The installed layouts that know storage managers, with their names."""
    for entry in entry_points(group=LAYOUTS_GROUP):
        try:
            layout = entry.load()()
        except (ImportError, AttributeError, TypeError):
            continue  # another layout may fit; if the user names this one, the error appears
        if isinstance(layout, BrokerStorageReader):
            yield entry.name, layout

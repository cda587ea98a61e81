"""A checked configuration: the keys of this package with their values, and the keys of librdkafka.

Rules of the file:

- Keys are strings in Kafka's spelling. Values are strings or have the type of the key.
- An unknown key with a prefix of this package is an error that names the nearest key.
- All other keys belong to librdkafka and are passed on unchanged. Text that is not UTF-8 would end the process there.
- No value of an option is printed, because options may hold secrets.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from remote_fetch.config.client import check_client, check_utf8, of_librdkafka, with_own
from remote_fetch.config.keys import KEYS, PREFIX_KEYS
from remote_fetch.config.settings import Settings
from remote_fetch.errors import ConfigError

__all__ = ["Config"]

_FILES_MAY_HAVE = ("remote.storage.options.", "remote.storage.layout.")
"""Prefixes of keys whose values may name files. A file's name may be any bytes."""
_CLIENT_PREFIX = "remote.locator."
"""Values below it are those of librdkafka's settings, which may be functions, as `oauth_cb` is."""
_OUR_PREFIXES = ("fetch.remote.", "remote.storage.", "remote.locator", "schema.registry")
_LIKE_OURS = 0.85
"""How similar an unknown key must be to a key of this package to count as its misspelling (difflib's ratio)."""
_ALL_KEYS = "`remote-fetch config keys` lists all keys"


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration: the keys of this package with their values, and librdkafka's keys unchanged.

    - `values` has every key of KEYS, and `given` the names that the user set. `settings` are the values, typed.
    - `options` go to the filesystem, `layout` to the layout, `locator` to the client of the metadata topic, `registry`
      to the client of the schema registry.
    - `librdkafka` has all other keys.

    Never print it whole: options and librdkafka's settings may hold secrets.
    """

    values: Mapping[str, str | int | bool | None] = field(repr=False)
    given: frozenset[str]
    options: Mapping[str, str] = field(repr=False)
    layout: Mapping[str, str] = field(repr=False)
    locator: Mapping[str, Any] = field(repr=False)
    registry: Mapping[str, str] = field(repr=False)
    librdkafka: Mapping[str, Any] = field(repr=False)
    settings: Settings = field(repr=False)

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Config:
        """Check and split a user's configuration. Raises ConfigError for the first wrong key or value."""
        if not isinstance(config, Mapping):
            raise ConfigError(f"a configuration is a dict of keys and values, not a {type(config).__name__}")
        values: dict[str, str | int | bool | None] = {name: key.default for name, key in KEYS.items()}
        given, librdkafka = set(), {}
        families: dict[str, dict[str, Any]] = {prefix: {} for prefix in PREFIX_KEYS}
        for name, value in of_librdkafka(config).items():
            if not isinstance(name, str):
                raise ConfigError(f"configuration keys are strings, not {name!r}")
            family = next((prefix for prefix in PREFIX_KEYS if name.startswith(prefix) and name != prefix), None)
            if name in KEYS:
                if value is not None:  # None is the same as a missing key, also below
                    values[name] = KEYS[name].parse(value)
                    given.add(name)
                continue
            check_utf8(name, None if family in _FILES_MAY_HAVE else value)
            if family is None:
                _refuse_misspelling(name)
                librdkafka[name] = value
            elif value is not None:
                option = value if family == _CLIENT_PREFIX else _option(name, value)
                families[family][name.removeprefix(family)] = option
        settings = Settings.of(values)
        if settings.bucket_only and "bootstrap.servers" in librdkafka:
            raise ConfigError(
                "fetch.remote.bucket.only=true and bootstrap.servers exclude each other",
                key="fetch.remote.bucket.only",
                hint="Leave out the first to read the rest of the log through the broker, else the second",
            )
        families[_CLIENT_PREFIX] = of_librdkafka(families[_CLIENT_PREFIX])
        options, layout, locator, registry = (MappingProxyType(families[prefix]) for prefix in PREFIX_KEYS)
        theirs = MappingProxyType(librdkafka)
        check_client(theirs)
        check_client(with_own(theirs, locator), _CLIENT_PREFIX)
        known = MappingProxyType(values)
        return cls(known, frozenset(given), options, layout, locator, registry, theirs, settings)

    def under(self, broker: Mapping[str, str]) -> Config:
        """This configuration, with keys from a broker's file that the user has not set. Raises ConfigError."""
        return Config.parse({**broker, **self.ours(), **self.librdkafka})

    def for_locator(self) -> dict[str, Any]:
        """librdkafka's keys for the client of the locator. Those under `remote.locator.` count first."""
        return with_own(self.librdkafka, self.locator)

    def ours(self) -> dict[str, Any]:
        """The keys of this package that were set, under their full names. Values may be secrets."""
        own: dict[str, Any] = {name: self.values[name] for name in sorted(self.given)}
        for prefix, family in zip(PREFIX_KEYS, (self.options, self.layout, self.locator, self.registry), strict=True):
            own.update({f"{prefix}{name}": value for name, value in family.items()})
        return own

    def for_fetcher(self) -> dict[str, str]:
        """The argument of a RemoteStorageFetcher's `configure`: the keys of this package that are set, as strings."""
        configs = {name: _as_text(value) for name, value in self.values.items() if value is not None}
        configs.update({f"remote.storage.options.{name}": value for name, value in self.options.items()})
        configs.update({f"remote.storage.layout.{name}": value for name, value in self.layout.items()})
        return configs


def _option(name: str, value: object) -> str:
    """An option as text: JSON for an object or an array. Raises ConfigError, which shows no value."""
    if not isinstance(value, (Mapping, list, tuple)):
        return str(value)
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value)
    except (TypeError, ValueError, RecursionError):
        what = "JSON has only texts, numbers, booleans, null, arrays and objects"
        raise ConfigError(f"{name}: a value in it cannot be JSON", key=name, hint=what) from None


def _as_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_misspelling(name: str) -> None:
    lowered = name.lower()
    if lowered in PREFIX_KEYS:
        raise ConfigError(f"{name!r} is the beginning of a key: a name follows it", key=name, hint=_ALL_KEYS)
    ours = lowered.startswith(_OUR_PREFIXES)
    near = difflib.get_close_matches(lowered, [*KEYS, *PREFIX_KEYS], n=1, cutoff=0.0 if ours else _LIKE_OURS)
    if ours or near:
        raise ConfigError(
            f"unknown configuration key {name!r}; the nearest one is {near[0]!r}",
            key=name,
            hint=_ALL_KEYS,
        )

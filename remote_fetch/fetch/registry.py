"""Makes the fetcher of a configuration: by short name, by class path, or by the scheme of the URL.

Rules of the file:

- This module finds fetchers by entry point or by the user's class path. It imports none by name.
- Every failure is a ConfigError that names the key, its value and the names that exist. The value is not shown if it
  may be a URL, which may hold a password.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any
from urllib.parse import urlsplit

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.plugins import (
    FETCHERS_GROUP,
    NOT_INSTALLED,
    entry_point,
    fetcher_of,
    installed_names,
    is_scheme,
    scheme_of,
)
from remote_fetch.fetch.spi import RemoteStorageFetcher
from remote_fetch.hosts import check_password, shown_url

__all__ = ["check_slashes", "load_fetcher", "no_storage_error"]

_CLASS_KEY = "remote.storage.fetcher.class"
_PATH_KEY = "remote.storage.fetcher.class.path"
_OF_URLS = frozenset("/@?#")
"""Characters of URLs that no name of a fetcher has."""
_URL_KEY = "remote.storage.url"
_VENDED = "vended"
"""The fetcher of the URLs that a service signs, if `remote.locator=service` and no storage is configured beside it."""


def load_fetcher(config: Config) -> RemoteStorageFetcher:
    """Make and configure the fetcher. Raises ConfigError, and the errors of the fetcher's `configure`."""
    _check_chain(config.settings.storage_url or "")
    name = _checked_class(config.settings.fetcher_class) or _name_from_url(config)
    path = config.settings.fetcher_class_path
    if path is not None and path not in sys.path:
        sys.path.append(path)
    factory = _import(name, _missing(path)) if ":" in name else _load_entry_point(name, _missing(path))
    try:
        fetcher: RemoteStorageFetcher = factory()
    except TypeError as error:
        raise ConfigError(f"{_CLASS_KEY}={name!r} cannot be made without arguments: {error}", key=_CLASS_KEY) from error
    missing = [
        method for method in ("configure", "fetch_log_segment", "fetch_index", "close") if not hasattr(fetcher, method)
    ]
    if missing:
        raise ConfigError(
            f"{_CLASS_KEY}={name!r} is no RemoteStorageFetcher: it lacks {', '.join(missing)}", key=_CLASS_KEY
        )
    fetcher.configure(config.for_fetcher() | _checked_url(config))
    return fetcher


def _checked_class(name: str | None) -> str | None:
    """The value of the class key. Raises ConfigError for a URL."""
    if name is not None and not _OF_URLS.isdisjoint(name):
        raise ConfigError(
            f"{_CLASS_KEY} is neither a short name nor package.module:Class",
            key=_CLASS_KEY,
            hint=f"Give the module by its name, with dots. The URL of the storage belongs in {_URL_KEY}",
        )
    return name


def _check_chain(url: str) -> None:
    """Raise ConfigError for a chain of URLs as fsspec has them: `simplecache::s3://b/tier`."""
    if "::" in scheme_of(url) or ("::" in url and url.count("://") > 1):
        raise ConfigError(
            f"{_URL_KEY} is a chain of URLs (::)",
            key=_URL_KEY,
            hint="Give one URL. What its filesystem needs beside it belongs in remote.storage.options.*",
        )


def _checked_url(config: Config) -> dict[str, str]:
    """The key of the URL, with its scheme in lower case; nothing for a path. Raises ConfigError for a wrong one."""
    url = config.settings.storage_url
    if url is None or "://" not in url:
        check_slashes(url or "", _URL_KEY)
        check_password(url or "", _URL_KEY)
        return {}
    try:
        urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{_URL_KEY} is no URL: {error}", key=_URL_KEY) from None
    scheme, _, rest = url.partition("://")
    return {_URL_KEY: f"{scheme.lower()}://{rest}"}


def check_slashes(url: str, key: str) -> None:
    """Raise ConfigError for `s3:/bucket`, which would be read as a directory. (A `file:` URL may have one slash.)"""
    scheme, colon, rest = url.partition(":")
    name = scheme.lower()
    if colon and name != "file" and is_scheme(name):
        better = shown_url(f"{name}://{rest.lstrip('/')}")
        raise ConfigError(
            f"{key}={scheme}:{better.removeprefix(f'{name}:/')}: there are two slashes after the scheme of a URL",
            key=key,
            hint=f"Set {key}={better}",
        )


def _name_from_url(config: Config) -> str:
    url = config.settings.storage_url
    if url is None and config.settings.locator == "service":
        return _VENDED
    if url is None:
        raise no_storage_error()
    return fetcher_of(scheme_of(url))


def no_storage_error() -> ConfigError:
    """The error if a storage is needed, and none is configured."""
    return ConfigError(
        "no remote storage is configured",
        key=_URL_KEY,
        hint=f"Set {_URL_KEY} (--url on the command line) to the directory or URL of the broker's tier",
    )


def _load_entry_point(name: str, hint: str) -> Any:
    entry = entry_point(FETCHERS_GROUP, name)
    if entry is None:
        names = installed_names(FETCHERS_GROUP)
        raise ConfigError(
            f"no fetcher is called {name!r}; installed are {', '.join(names) or 'none'}{hint}",
            key=_CLASS_KEY,
            hint=f"Name one of them in {_CLASS_KEY}, or give package.module:Class" if names else NOT_INSTALLED,
        )
    return _import(entry.value)


def _missing(path: str | None) -> str:
    """A hint if the path to import from is not there: the user's module, or name, is missing because of it."""
    if path is None or os.path.exists(path):
        return ""
    return f" ({_PATH_KEY}={shown_url(path)}: there is no such file or directory)"


def _import(target: str, hint: str | None = None) -> Any:
    """`hint` is for the error, None for a class of an entry point."""
    module_name, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        top = module_name.partition(".")[0]
        advice = None
        if hint == "" and isinstance(error, ModuleNotFoundError) and error.name == top:
            advice = f"Install {top}, or name the folder that has it in {_PATH_KEY}"
        hint = _shadowed(module_name) if hint is None else hint
        raise ConfigError(f"cannot load {target}: {error}{hint}", key=_CLASS_KEY, hint=advice) from error


def _shadowed(module_name: str) -> str:
    """A hint with the path of the imported top-level package. A user's own package `fetchers` may shadow ours."""
    top = module_name.partition(".")[0]
    module = sys.modules.get(top)
    where = getattr(module, "__file__", None) or getattr(module, "__path__", None)
    return f" (the package {top!r} was found at {where}; is it shadowing the one of remote-fetch?)" if where else ""

"""A fetcher's part of the configuration: the filesystem's options, which come as text, and both timeouts.

Rules of the file:

- A value is a secret. No message shows it.
- Text stays text unless it can only be a number, a truth value or JSON.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Any, NamedTuple

from fsspec.dircache import DirCache

from remote_fetch.config import KEYS
from remote_fetch.config.settings import typed_option
from remote_fetch.errors import ConfigError
from remote_fetch.hosts import is_http_url

__all__ = [
    "OPTIONS",
    "Timeouts",
    "check_endpoint",
    "check_names",
    "check_objects",
    "named_parameters",
    "options_of",
    "timeouts_of",
    "with_defaults",
]

OPTIONS = "remote.storage.options."
_CONNECT, _READ = "fetch.remote.connect.timeout.ms", "fetch.remote.read.timeout.ms"


class Timeouts(NamedTuple):
    """Longest waits, in seconds: for a connection, and for the whole answer."""

    connect_s: float
    read_s: float


def timeouts_of(configs: Mapping[str, str]) -> Timeouts:
    """Both timeouts of a configuration, the defaults if it has none. Raises ConfigError."""
    connect_ms, read_ms = (
        int(KEYS[name].parse(configs[name]) if name in configs else KEYS[name].default or 0)
        for name in (_CONNECT, _READ)
    )
    return Timeouts(connect_ms / 1000, read_ms / 1000)


def options_of(configs: Mapping[str, str]) -> dict[str, Any]:
    """The options under `remote.storage.options.`, under the rest of their names, each as what it looks like.

    `true`, `false` and `null`, numbers, and JSON objects, arrays and strings (in quotes: what is in them is text in
    any case) become what they are. Names that speak of identities and secrets keep words and numbers as text.
    """
    return {
        name.removeprefix(OPTIONS): typed_option(name.removeprefix(OPTIONS), text)
        for name, text in configs.items()
        if name.startswith(OPTIONS)
    }


def with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`given`, and `defaults` where it says nothing, also inside nested objects."""
    merged = {**defaults, **given}
    for name, default in defaults.items():
        if isinstance(default, Mapping) and isinstance(given.get(name), Mapping):
            merged[name] = with_defaults(given[name], default)
    return merged


def check_endpoint(given: Mapping[str, Any], place: str = OPTIONS + "endpoint_url") -> None:
    """Raise ConfigError for an `endpoint_url` that is no URL, or has a query. It may hold a secret: it is not shown."""
    endpoint = given.get("endpoint_url")
    if endpoint is not None and ("?" in str(endpoint) or not is_http_url(str(endpoint))):
        raise ConfigError(
            f"{place} is no URL",
            key=OPTIONS + "endpoint_url",
            hint="Begin it with https://, or with http:// if the server has no TLS; a port is a number, and no query",
        )


def named_parameters(maker: Callable[..., object]) -> list[Parameter]:
    """The parameters of an `__init__` that take an option by its name."""
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [each for each in list(signature(maker).parameters.values())[1:] if each.kind in named]


def check_names(given: Iterable[str], filesystem: type, name: str) -> None:
    """Raise ConfigError for an option that is no parameter of the filesystem's classes. `name` is for the message.

    fsspec's own classes ignore an option that they do not know. So does DirCache, which gets the options from them.
    """
    makers = [one.__init__ for one in (*filesystem.__mro__, DirCache) if "__init__" in vars(one) and one is not object]
    taken = {each.name for one in makers for each in named_parameters(one)} - {"skip_instance_cache"}
    for option in given:
        if option not in taken:
            near = difflib.get_close_matches(option, sorted(taken), n=1, cutoff=0.0)
            raise ConfigError(
                f"the {name!r} filesystem has no option {OPTIONS}{option}; the nearest one is {OPTIONS}{near[0]}",
                key=OPTIONS + option,
            )


def check_objects(given: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise ConfigError for an option of these names whose value is no JSON object."""
    for name in names:
        if not isinstance(given.get(name, {}), Mapping):
            raise ConfigError(
                f"{OPTIONS}{name} is no JSON object",
                key=OPTIONS + name,
                hint='Write names and texts in double quotes, as in {"name": "text"}',
            )

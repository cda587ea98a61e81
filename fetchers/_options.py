"""A fetcher's part of the configuration: the filesystem's options, which come as text, and both timeouts.

Rules of the file:

- A value is a secret. No message shows it.
- Text stays text unless it can only be a number, a truth value or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from remote_fetch.config import KEYS

__all__ = ["OPTIONS", "Timeouts", "options_of", "timeouts_of", "with_defaults"]

OPTIONS = "remote.storage.options."
_CONNECT, _READ = "fetch.remote.connect.timeout.ms", "fetch.remote.read.timeout.ms"

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_WORDS = {"true": True, "false": False, "null": None}
_TEXTS = frozenset(
    {
        "account", "credential", "credentials", "id", "key", "name", "passphrase", "passwd", "password", "profile",
        "project", "region", "sas", "secret", "string", "tenant", "token", "user", "username",
    }
)  # fmt: skip
"""Parts of names whose values are text whatever they look like: a password may be all digits."""


class Timeouts(NamedTuple):
    """Longest waits, in seconds: for a connection, and for the whole answer."""

    connect_s: float
    read_s: float


def timeouts_of(configs: Mapping[str, str]) -> Timeouts:
    """Both timeouts of a configuration, the defaults where it has none. Raises ConfigError."""
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
        name.removeprefix(OPTIONS): _value(name.removeprefix(OPTIONS), text)
        for name, text in configs.items()
        if name.startswith(OPTIONS)
    }


def _value(name: str, text: str) -> Any:
    if text[:1] in ("{", "[", '"'):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if _TEXTS & set(re.split(r"[^a-z0-9]+", name.lower())):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text


def with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`given`, and `defaults` where it says nothing, also inside nested objects."""
    merged = {**defaults, **given}
    for name, default in defaults.items():
        if isinstance(default, Mapping) and isinstance(given.get(name), Mapping):
            merged[name] = with_defaults(given[name], default)
    return merged

"""The keys of a configuration as librdkafka takes them: one name for each, none below another key, text that is UTF-8.

Rules of the file:

- Pure. Every configuration of this package passes here before a client gets it.
- A client whose properties are fixed by this package must not get others under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError

__all__ = ["OTHER_NAMES", "check_utf8", "of_librdkafka"]

_BROKERS, _TOPIC_DEFAULTS = "bootstrap.servers", "default.topic.config"
OTHER_NAMES = {"metadata.broker.list": _BROKERS}
"""Other names that librdkafka has for a key that this package looks at."""


def of_librdkafka(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration under librdkafka's own names. Of two names of a key the last one counts, as in librdkafka.

    The properties of `default.topic.config` are among the others, and win. None as brokers is a missing key.
    """
    inner = config.get(_TOPIC_DEFAULTS)
    pairs = list(config.items())
    if isinstance(inner, dict):
        pairs = [pair for pair in pairs if pair[0] != _TOPIC_DEFAULTS] + list(inner.items())
    named = {OTHER_NAMES.get(name, name): value for name, value in pairs}
    if named.get(_BROKERS, "") is None:
        del named[_BROKERS]
    return named


def check_utf8(name: str, value: object = None) -> None:
    """Raise ConfigError for a name, or a text as its value, that cannot be UTF-8. A dict is checked as a whole.

    The words of a command line that are not UTF-8 are text with lone surrogates in Python.
    """
    if isinstance(value, dict):
        for inner, one in value.items():
            check_utf8(str(inner), one)
    for text, of_what in ((name, "the name"), (value, "the value")):
        if isinstance(text, str) and not _is_utf8(text):
            raise ConfigError(f"{ascii(name)[1:-1]}: {of_what} is not UTF-8", key=ascii(name)[1:-1])


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

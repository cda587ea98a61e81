"""The keys of a configuration as librdkafka takes them: one name for each, none below another key, text that is UTF-8.

Rules of the file:

- Pure. Every configuration of this package passes here before a client gets it.
- A client whose properties are fixed by this package must not get others under another name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError

__all__ = [
    "MECHANISM_NAMES",
    "OTHER_NAMES",
    "SECURITY_PREFIXES",
    "check_client",
    "check_utf8",
    "mechanism_of",
    "of_librdkafka",
    "reset_of",
    "takes_tokens",
    "with_own",
    "word_of",
]

_BROKERS, _GROUP, _TOPIC_DEFAULTS = "bootstrap.servers", "group.id", "default.topic.config"
_PROTOCOL, _PROTOCOLS = "security.protocol", ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
OTHER_NAMES = {"metadata.broker.list": _BROKERS}
"""Other names that librdkafka has for a key that this package looks at."""
SECURITY_PREFIXES = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")
"""Prefixes of keys that say how a client proves who it is, and what it trusts."""
MECHANISM_NAMES = ("sasl.mechanism", "sasl.mechanisms")
"""The two names of the key of the SASL mechanism."""
_RESETS = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest"}
"""Other words that librdkafka has for the values of `auto.offset.reset`."""
_FOR_TOKENS = ("oauth_cb", "sasl.oauthbearer.")
"""Prefixes of keys that only a client with tokens needs."""
_ADDRESS = re.compile(r"(?:\[[^\]]*\]|[^:/]*):([^:/]*)(?:/.*)?")
"""An address with a port, as librdkafka divides it. One with more colons and no brackets is IPv6 without a port."""
_PORT = re.compile(r"\s*\+?0*([0-9]{1,5})\W*", re.ASCII)
"""A port as librdkafka reads it, after spaces and up to a sign, as in `HOST: 9092;`."""


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


def with_own(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a client that has keys of its `own` over those that it shares with another client.

    A client that takes no token gets none of the other client's keys for tokens. With an `oauth_cb` confluent_kafka
    would wait for a token that librdkafka never requests.
    """
    # A mechanism of its own wins over both names of the shared one.
    others = MECHANISM_NAMES if mechanism_of(own) is not None else ()
    both = {**{name: value for name, value in shared.items() if name not in others}, **own}
    if takes_tokens(both):
        return both
    return {name: value for name, value in both.items() if name in own or not name.startswith(_FOR_TOKENS)}


def check_client(properties: Mapping[str, Any], prefix: str = "") -> None:
    """Raise ConfigError for brokers that are named, but by no address, for a wrong port, and for an empty group.

    librdkafka would wait for an address, and take another port: 34463 for 99999. For an empty group confluent_kafka
    ends the process, by an assertion. If the first address begins with another protocol than security.protocol, or
    with none of Kafka's, librdkafka drops all addresses, and waits too.
    """
    named = str(properties.get(_BROKERS, "?"))
    if not named.replace(",", "").strip():
        raise ConfigError(f"{prefix}{_BROKERS} names no address: give HOST:PORT", key=prefix + _BROKERS)
    for address in named.split(","):
        found = _ADDRESS.fullmatch(address.rpartition("://")[2].strip())
        if found is not None and not _is_port(found[1]):
            # The text is not shown: it may be a password, as in USER:PASSWORD@HOST.
            raise ConfigError(f"{prefix}{_BROKERS}: a port is a number from 1 to 65535", key=prefix + _BROKERS)
    protocol, has_protocol, _ = next(address for address in named.split(",") if address.strip()).partition("://")
    name, wanted = protocol.strip().lower(), word_of(properties, _PROTOCOL, "plaintext")
    if has_protocol and name != wanted:
        raise ConfigError(
            f"{prefix}{_BROKERS} begins with another protocol than {_PROTOCOL}={wanted}",
            key=prefix + _BROKERS,
            hint=f"Set {prefix}{_PROTOCOL}={name}" if name in _PROTOCOLS else "Give HOST:PORT alone",
        )
    if isinstance(properties.get(_TOPIC_DEFAULTS), str):  # confluent_kafka would raise AttributeError
        key = prefix + _TOPIC_DEFAULTS
        hint = "Leave it out, and give its properties beside the others"
        raise ConfigError(f"{key} is a dict in Python, and cannot be a text", key=key, hint=hint)
    if properties.get(_GROUP, "?") in ("", None):
        raise ConfigError(f"{prefix}{_GROUP} is empty", key=prefix + _GROUP)


def _is_port(text: str) -> bool:
    found = _PORT.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 2**16


def mechanism_of(properties: Mapping[str, Any]) -> Any:
    """The SASL mechanism, None if there is none. Of its two names the last one counts, as in librdkafka."""
    return [None, *(value for name, value in properties.items() if name in MECHANISM_NAMES)][-1]


def takes_tokens(properties: Mapping[str, Any]) -> bool:
    """Whether a client authenticates with a token, by OAUTHBEARER."""
    is_sasl = word_of(properties, "security.protocol", "").startswith("sasl")
    return is_sasl and str(mechanism_of(properties)).strip().upper() == "OAUTHBEARER"


def word_of(properties: Mapping[str, Any], name: str, default: str) -> str:
    """The value of a property in lower case, because librdkafka ignores the case."""
    return str(properties.get(name, default)).strip().lower()


def reset_of(properties: Mapping[str, Any], default: str = "latest") -> str:
    """The value of `auto.offset.reset`: `earliest`, `latest`, `error`, or a word that librdkafka refuses."""
    word = word_of(properties, "auto.offset.reset", default)
    return _RESETS.get(word, word)


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

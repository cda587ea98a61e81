"""A consumer's configuration, split: what is ours, what the application's own librdkafka gets, what a side client gets.

Rules of the file: no connection is made; switched off, not a key is changed; switched on, only what would go past us is
taken from librdkafka and done by us in its stead (storing offsets, resetting them). A side client never gets the
group's identity, which would fence the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remote_fetch.config import KEYS, Config
from remote_fetch.model import IsolationLevel

__all__ = ["ENABLED", "ConsumerSettings", "ResetPolicy"]

ENABLED = "fetch.remote.enabled"
"""The key that switches the remote half on."""
_SIDE_PREFIXES = (
    "bootstrap.", "metadata.", "client.", "security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "socket.",
    "reconnect.", "broker.", "api.version.", "connections.", "resolve.", "allow.auto.create.",
)  # fmt: skip
_SIDE_KEYS = ("oauth_cb", "https.ca.location")
"""`oauth_cb` gives a client the token to connect with. The other callbacks, and `logger`, tell of a client; the
application knows of one, so a side client has none of them."""
_POLICIES = {
    "smallest": "earliest",
    "beginning": "earliest",
    "earliest": "earliest",
    "largest": "latest",
    "end": "latest",
    "latest": "latest",
    "error": "error",
}
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
_PAUSE_IN_BACKOFFS = 10
"""A storage that failed is left alone for ten times the pause after which a GET is tried again: a second by default."""


class ResetPolicy(StrEnum):
    """`auto.offset.reset`, its aliases resolved."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What `RemoteConsumer` makes of the configuration it was given.

    `librdkafka` goes to the parent's constructor, `remote` to the reader of the store with its side clients. Where
    `is_enabled` is false the other fields mean nothing. `watchdog_ms` is how long a partition that was handed to
    librdkafka may stay silent before the hand-over is made again, `patience_ms` how long the store's side may take to
    give its first record, `retry_pause_ms` how long a storage or a partition that failed is left to librdkafka at
    first.
    """

    is_enabled: bool
    librdkafka: Mapping[str, Any] = field(repr=False)
    remote: Config = field(repr=False)
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    reset: ResetPolicy = ResetPolicy.LATEST
    stores_offsets: bool = True
    is_cooperative: bool = False
    watchdog_ms: int = 1_500
    patience_ms: int = 6_000
    queued_bytes: int = 64 << 20
    retry_pause_ms: int = 1_000

    @property
    def names(self) -> tuple[str, str]:
        """`client.id`, which is librdkafka's default if it is not set, and `group.id`."""
        return str(self.librdkafka.get("client.id", "rdkafka")), str(self.librdkafka.get("group.id", ""))

    @classmethod
    def of(cls, configuration: Mapping[str, Any]) -> ConsumerSettings:
        """Split a configuration. Raises ConfigError for a key or value of ours that is wrong."""
        flat = {**configuration}
        topic_defaults = flat.get("default.topic.config")
        if isinstance(topic_defaults, dict):
            del flat["default.topic.config"]
            flat.update(topic_defaults)
        parsed = Config.parse(flat)
        if parsed.values[ENABLED] is not True:
            ours = {*KEYS, *(name for name in flat if name not in parsed.librdkafka)}
            return cls(False, {name: value for name, value in configuration.items() if name not in ours}, parsed)
        theirs = dict(parsed.librdkafka)
        # A wrong value stays, for librdkafka to refuse in its own words.
        inner = dict(theirs)
        if _word(theirs, "enable.auto.offset.store", "true") in (*_TRUE, *_FALSE):
            inner["enable.auto.offset.store"] = False
        if _word(theirs, "auto.offset.reset", "latest") in _POLICIES:
            inner["auto.offset.reset"] = ResetPolicy.ERROR.value
        return cls(
            True,
            inner,
            _for_the_side(parsed, flat),
            _isolation(theirs),
            _reset(theirs),
            _word(theirs, "enable.auto.offset.store", "true") in _TRUE,
            _is_cooperative(theirs),
            _number(theirs, "fetch.wait.max.ms", 500) + 1_000,
            sum(parsed.number(f"fetch.remote.{wait}.timeout.ms") for wait in ("connect", "read")),
            _number(theirs, "queued.max.messages.kbytes", 65_536) << 10,
            _PAUSE_IN_BACKOFFS * parsed.number("fetch.remote.retry.backoff.ms"),
        )


def _for_the_side(parsed: Config, flat: Mapping[str, Any]) -> Config:
    """Our keys, and of librdkafka's those that say how to reach the cluster."""
    theirs = {
        name: value
        for name, value in parsed.librdkafka.items()
        if name.startswith(_SIDE_PREFIXES) or name in _SIDE_KEYS
    }
    ours = {name: value for name, value in flat.items() if name not in parsed.librdkafka}
    return Config.parse({**ours, **theirs})


def _isolation(properties: Mapping[str, Any]) -> IsolationLevel:
    try:
        return IsolationLevel(_word(properties, "isolation.level", IsolationLevel.READ_COMMITTED.value))
    except ValueError:
        return IsolationLevel.READ_COMMITTED  # librdkafka refuses the value in its own words


def _reset(properties: Mapping[str, Any]) -> ResetPolicy:
    return ResetPolicy(_POLICIES.get(_word(properties, "auto.offset.reset", "latest"), "error"))


def _is_cooperative(properties: Mapping[str, Any]) -> bool:
    """Whether rebalances are incremental: KIP-429's assignor, or the group protocol of KIP-848."""
    strategies = str(properties.get("partition.assignment.strategy", ""))
    return str(properties.get("group.protocol", "classic")).lower() == "consumer" or "cooperative" in strategies


def _word(properties: Mapping[str, Any], name: str, default: str) -> str:
    """A value that is a word, of which librdkafka ignores the case."""
    return str(properties.get(name, default)).strip().lower()


def _number(properties: Mapping[str, Any], name: str, default: int) -> int:
    try:
        return int(properties.get(name, default))
    except (TypeError, ValueError):
        return default  # librdkafka refuses the value in its own words

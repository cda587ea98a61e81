"""Splits a consumer's configuration: for the remote half, for the application's librdkafka, for side clients.

Rules of the file:

- No connection is made.
- If remote fetch is off, librdkafka gets all its keys unchanged.
- If it is on, librdkafka stores and resets no offsets, because the remote half does both.
- A side client never gets the group's identity, because the broker would fence the member.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remote_fetch.config import KEYS, Config
from remote_fetch.config.client import SECURITY_PREFIXES, of_librdkafka, reset_of, word_of
from remote_fetch.config.typed import TYPED_PREFIXES
from remote_fetch.errors import ConfigError
from remote_fetch.model import IsolationLevel

__all__ = ["ENABLED", "ConsumerSettings", "ResetPolicy"]

_LOG = logging.getLogger("remote_fetch")
ENABLED = "fetch.remote.enabled"
"""The key that switches the remote half on."""
_SIDE_PREFIXES = (
    "bootstrap.", "metadata.", "client.", *SECURITY_PREFIXES, "socket.", "reconnect.", "broker.", "api.version.",
    "connections.", "resolve.", "allow.auto.create.",
)  # fmt: skip
_SIDE_KEYS = ("oauth_cb", "https.ca.location")
"""Further keys of a side client. It needs the token that `oauth_cb` gives. It gets no other callback and no `logger`,
because these report about a client, and the application knows only its own client."""
_SIDE_LOG_LEVEL = 2
"""A side client does not log each failed connection, up to a hundred a second while a broker is away. The client of the
application logs its own."""
_WATCHDOG_S = 1.0
"""How long, in addition to `fetch.wait.max.ms`, librdkafka may give no record of a partition."""
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
_SHORTEST_IDLE_S, _LONGEST_IDLE_S = 0.1, 1.0
_BACKOFFS_A_PAUSE = 10
"""After a failure, the storage is not used for ten backoffs of a GET: a second by default."""


class ResetPolicy(StrEnum):
    """The values of `auto.offset.reset`, with its aliases resolved."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The configuration of a `RemoteConsumer`, split by the parts that use it.

    - `librdkafka` goes to the parent's constructor.
    - `remote` goes to the session that reads the store, with its side clients.
    - If `is_enabled` is false, the fields after it have no meaning.
    - `watchdog_s`: how long librdkafka may give no record of a partition before the hand-over is repeated.
    - `patience_s`: how long neither the store nor the brokers may answer before librdkafka reads on.
    - `retry_pause_s`: how long librdkafka reads after the first failure of a storage or a partition.
    - `idle_store_s`: how often positions are stored while the application makes no call, or waits in one. None: never.
    - `commits`: librdkafka commits without a call of the application, `enable.auto.commit`.
    """

    is_enabled: bool
    librdkafka: Mapping[str, Any] = field(repr=False)
    remote: Config = field(repr=False)
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    reset: ResetPolicy = ResetPolicy.LATEST
    stores_offsets: bool = True
    is_cooperative: bool = False
    watchdog_s: float = 1.5
    patience_s: float = 6.0
    queued_bytes: int = 64 << 20
    retry_pause_s: float = 1.0
    idle_store_s: float | None = None
    commits: bool = True

    @property
    def names(self) -> tuple[str, str]:
        """`client.id` (or librdkafka's default) and `group.id`."""
        return str(self.librdkafka.get("client.id", "rdkafka")), str(self.librdkafka.get("group.id", ""))

    @classmethod
    def parse(cls, configuration: Mapping[str, Any]) -> ConsumerSettings:
        """Split a configuration. Raises ConfigError for a wrong key or value of remote-fetch."""
        flat = of_librdkafka(configuration)
        if not Config.parse({ENABLED: flat.get(ENABLED)}).settings.enabled:
            flat.pop("bootstrap.servers", None)  # librdkafka goes on if it can read one address of several
        parsed = Config.parse(flat)
        _refuse_typed(parsed)
        if not parsed.settings.enabled:
            ours = {*KEYS, *(name for name in flat if name not in parsed.librdkafka)}
            return cls(False, {name: value for name, value in configuration.items() if name not in ours}, parsed)
        theirs = parsed.librdkafka
        # A wrong value stays: librdkafka refuses it with its own message.
        inner = dict(theirs)
        if word_of(theirs, "enable.auto.offset.store", "true") in (*_TRUE, *_FALSE):
            inner["enable.auto.offset.store"] = False
        reset = reset_of(theirs)
        is_known = reset in tuple(ResetPolicy)
        if is_known:
            inner["auto.offset.reset"] = ResetPolicy.ERROR.value
        return cls(
            True,
            inner,
            _side_configuration(parsed, flat),
            isolation=_isolation(theirs),
            reset=ResetPolicy(reset) if is_known else ResetPolicy.ERROR,
            stores_offsets=_is_on(theirs, "enable.auto.offset.store"),
            is_cooperative=_is_cooperative(theirs),
            watchdog_s=_number(theirs, "fetch.wait.max.ms", 500) / 1000 + _WATCHDOG_S,
            patience_s=(parsed.settings.connect_timeout_ms + parsed.settings.read_timeout_ms) / 1000,
            queued_bytes=_number(theirs, "queued.max.messages.kbytes", 65_536) << 10,
            retry_pause_s=_BACKOFFS_A_PAUSE * parsed.settings.retry_backoff_ms / 1000,
            idle_store_s=_idle_store_s(theirs),
            commits=_is_on(theirs, "enable.auto.commit"),
        )

    def log_ignored_keys(self) -> None:
        """Log that keys of remote-fetch have no effect, because it is off. At WARNING if the switch is missing."""
        idle = sorted(self.remote.ours().keys() - {ENABLED})
        if idle:
            level = logging.INFO if ENABLED in self.remote.given else logging.WARNING
            text = "%s is not true: all records come from the brokers, and nothing is done with %s"
            _LOG.log(level, text, ENABLED, ", ".join(idle))


def _refuse_typed(parsed: Config) -> None:
    """Raise ConfigError for the keys of typed columns, as librdkafka does for keys that it does not know."""
    typed = [name for name in parsed.ours() if name.startswith(TYPED_PREFIXES)]
    if typed:
        raise ConfigError(
            f"{typed[0]} makes typed columns, and a consumer gives messages",
            key=typed[0],
            hint="Use RemoteDeserializingConsumer with value.deserializer, or read_arrow",
        )


def _side_configuration(parsed: Config, flat: Mapping[str, Any]) -> Config:
    """The keys of remote-fetch, and librdkafka's connection keys for side clients."""
    theirs = {
        name: value
        for name, value in parsed.librdkafka.items()
        if name.startswith(_SIDE_PREFIXES) or name in _SIDE_KEYS
    }
    ours = {name: value for name, value in flat.items() if name not in parsed.librdkafka}
    log_level = min(_number(parsed.librdkafka, "log_level", _SIDE_LOG_LEVEL), _SIDE_LOG_LEVEL)
    return Config.parse({**ours, **theirs, "log_level": log_level})


def _isolation(properties: Mapping[str, Any]) -> IsolationLevel:
    try:
        return IsolationLevel(word_of(properties, "isolation.level", IsolationLevel.READ_COMMITTED.value))
    except ValueError:
        return IsolationLevel.READ_COMMITTED  # librdkafka refuses the value with its own message


def _is_cooperative(properties: Mapping[str, Any]) -> bool:
    """Whether rebalances are incremental, because of KIP-429's assignor or the group protocol of KIP-848."""
    strategies = str(properties.get("partition.assignment.strategy", ""))
    return str(properties.get("group.protocol", "classic")).lower() == "consumer" or "cooperative" in strategies


def _is_on(properties: Mapping[str, Any], name: str) -> bool:
    """The value of a switch that is on by default."""
    return word_of(properties, name, "true") in _TRUE


def _idle_store_s(properties: Mapping[str, Any]) -> float | None:
    """Twice an interval of librdkafka's auto-commit, and at least each second."""
    interval_s = _number(properties, "auto.commit.interval.ms", 5_000) / 1000
    commits = _is_on(properties, "enable.auto.commit") and _is_on(properties, "enable.auto.offset.store")
    return min(max(interval_s / 2, _SHORTEST_IDLE_S), _LONGEST_IDLE_S) if commits and interval_s > 0 else None


def _number(properties: Mapping[str, Any], name: str, default: int) -> int:
    try:
        return int(properties.get(name, default))
    except (TypeError, ValueError):
        return default  # librdkafka refuses the value with its own message

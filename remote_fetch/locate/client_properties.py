"""The configuration of the clients that this package opens for itself.

Rules of the file:

- No consumer joins a group, commits an offset or resets its own.
- No client makes a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remote_fetch.model import IsolationLevel

__all__ = ["NO_LONG_POLL", "PROBE", "admin_properties", "consumer_properties"]

_GROUP = "remote-fetch"
"""librdkafka demands a group id, also of a consumer that joins no group."""
_FETCH_QUEUE_BACKOFF_MS = 10
"""By default librdkafka stops fetching for a second when 100,000 records wait. Small records are read in less time."""
_RECONNECT_BACKOFF_MS = 20
"""librdkafka (2.16) drops its bootstrap connection as soon as it knows the brokers. For half of this time it then opens
no other one: 50 ms by default, and all questions wait."""
_MOST_RESPONSE_BYTES = 2**31 - 1
"""The most that librdkafka takes. A broker sends a batch that is larger than `fetch.max.bytes` alone, but whole. By
default librdkafka drops the connection above 100 MB, again and again, and then names other requests as damaged. It also
refuses a zstd batch that inflates to more. A lower value would not fit each `fetch.max.bytes` that a user may set."""
_LOG_LEVEL = 2
"""For clients that the application does not know: below the levels of a failed connection and of a request that times
out. While all brokers are away, librdkafka (2.16) goes back to `bootstrap.servers` after each failure (KIP-899). Then
each client would log up to a hundred lines a second, without its limit for lines that repeat. This package waits, and
reports once which brokers are away."""
_NO_STATISTICS = {"statistics.interval.ms": 0}
"""For a client that is not polled for long: until then librdkafka keeps all its statistics in memory, 8 KB each."""
NO_LONG_POLL = {"fetch.wait.max.ms": 10, **_NO_STATISTICS}
"""For a consumer that reads to an end and then asks something else. A broker answers one connection in order, so a
fetch that waits for records (half a second by default) would delay the next question."""
PROBE = {**NO_LONG_POLL, "fetch.message.max.bytes": 1024, "queued.min.messages": 1}
"""For a consumer whose answer matters, not its records: short waits and few bytes."""

_CONSUMER_ONLY = (
    "group.",
    "enable.auto.",
    "enable.partition.eof",
    "auto.",
    "isolation.",
    "fetch.",
    "max.poll.",
    "max.partition.",
    "queued.",
    "session.",
)
_STATISTICS = ("statistics.", "stats_cb")


def consumer_properties(properties: Mapping[str, Any], isolation: IsolationLevel) -> dict[str, Any]:
    """The configuration of a consumer that reads by assignment: the user's settings, and those that are fixed."""
    return {
        "group.id": _GROUP,
        "log_level": _LOG_LEVEL,
        "fetch.queue.backoff.ms": _FETCH_QUEUE_BACKOFF_MS,
        "reconnect.backoff.ms": _RECONNECT_BACKOFF_MS,
        "receive.message.max.bytes": _MOST_RESPONSE_BYTES,
        "check.crcs": True,  # as for records of the store; librdkafka's default is false
        **properties,
        "isolation.level": isolation.value,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "enable.partition.eof": True,
    }


def admin_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties without those of a consumer, about which librdkafka would warn, and without statistics.

    An AdminClient is not polled here, so librdkafka would keep all its statistics in memory. For librdkafka it is a
    producer, and by default a producer that looks up a topic lets the broker create it.
    """
    left_out = (*_CONSUMER_ONLY, *_STATISTICS)
    known = {name: value for name, value in properties.items() if not name.startswith(left_out)}
    return {
        "log_level": _LOG_LEVEL,
        "reconnect.backoff.ms": _RECONNECT_BACKOFF_MS,
        **known,
        "allow.auto.create.topics": False,
    }

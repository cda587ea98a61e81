"""The clients that this package opens for itself: their consumer class, and their configuration.

Rules of the file:

- The consumer class is that of confluent_kafka's C module, not `confluent_kafka.Consumer`: tracers (OpenTelemetry,
  ddtrace) and patches of a site replace that name. A replaced class would trace the reading of `__remote_log_metadata`,
  or would make a RemoteConsumer inside of a RemoteConsumer, for ever. Ruff refuses the other name in this package.
- `confluent_kafka.admin.AdminClient` is taken from its own module, for the C module has only its base; tracers leave it
  alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.cimpl import Consumer

from remote_fetch.model import IsolationLevel

__all__ = ["NO_LONG_POLL", "PROBE", "Consumer", "admin_properties", "consumer_properties"]

_GROUP = "remote-fetch"
"""librdkafka wants a group even of those who never join one."""
_FETCH_QUEUE_BACKOFF_MS = 10
"""By default librdkafka fetches nothing for a second once 100,000 records wait: of small ones they are read in less."""
_LOG_LEVEL = 3
"""Of clients that the application does not know of: what is an error to librdkafka. That requests time out while
leaders move or brokers are away (REQTMOUT, a warning) is waited for, and told of by this package if it takes long."""
NO_LONG_POLL = {"fetch.wait.max.ms": 10}
"""Of a consumer that reads to an end and is then asked something else: a broker answers one connection in order, and a
fetch that waits for records to come would keep the question waiting, half a second by default."""
PROBE = {"fetch.wait.max.ms": 10, "fetch.message.max.bytes": 1024, "queued.min.messages": 1}
"""Of a consumer whose answer counts, not its records: it soon hears that there are none, and takes few."""

_CONSUMER_ONLY = (
    "group.",
    "enable.",
    "auto.",
    "isolation.",
    "fetch.",
    "max.poll.",
    "max.partition.",
    "queued.",
    "session.",
)


def consumer_properties(properties: Mapping[str, Any], isolation: IsolationLevel) -> dict[str, Any]:
    """A consumer's configuration for reads by assignment: what the user gave, and what must not be otherwise."""
    return {
        "group.id": _GROUP,
        "log_level": _LOG_LEVEL,
        "fetch.queue.backoff.ms": _FETCH_QUEUE_BACKOFF_MS,
        **properties,
        "isolation.level": isolation.value,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "enable.partition.eof": True,
    }


def admin_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Without what only a consumer knows: librdkafka would warn of it."""
    known = {name: value for name, value in properties.items() if not name.startswith(_CONSUMER_ONLY)}
    return {"log_level": _LOG_LEVEL, **known}

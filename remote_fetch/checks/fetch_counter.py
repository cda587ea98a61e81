"""Counts the fetch requests that consumers send to their brokers, by librdkafka's statistics.

Rules of the file:

- librdkafka tells its statistics at an interval, from a call of the consumer. So the newest count is waited for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["FetchCounter"]

_INTERVAL_MS = 250
_WAIT_S = 5.0


class FetchCounter:
    """The fetch requests of all consumers that are made with `properties`."""

    def __init__(self) -> None:
        self._requests: dict[str, int] = {}
        self._told_us: dict[str, int] = {}

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties of a consumer that is counted. They are librdkafka's."""
        return {"stats_cb": self._take, "statistics.interval.ms": _INTERVAL_MS}

    def total(self, consumer: Any) -> int:
        """All requests so far, after the next statistics of this consumer. An older count after five seconds."""
        before, deadline_s = dict(self._told_us), time.monotonic() + _WAIT_S
        while self._told_us == before and time.monotonic() < deadline_s:
            consumer.poll(_INTERVAL_MS / 1000)
        return sum(self._requests.values())

    def _take(self, text: str) -> None:
        """The statistics of one client (librdkafka's STATISTICS.md: `brokers`, and of each `req`)."""
        told = json.loads(text)
        brokers = told["brokers"].values()
        self._requests[told["name"]] = sum(broker.get("req", {}).get("Fetch", 0) for broker in brokers)
        self._told_us[told["name"]] = told["ts"]

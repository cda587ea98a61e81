"""The brokers of a session: opens the clients that ask them and the reader of their records.

Rules of the file:

- A session has brokers if `bootstrap.servers` is configured. The only test for that is `Session.brokers is None`.
- `FallbackRule` decides whether offsets may come through the brokers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remote_fetch.config.client import reset_of
from remote_fetch.config.settings import Settings
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Observer

if TYPE_CHECKING:
    from remote_fetch.locate.cluster import Cluster
    from remote_fetch.session.broker import BrokerReader
    from remote_fetch.session.guard import LogGuard

__all__ = ["CLUSTER_TIMEOUT_MS", "Brokers", "make_cluster", "open_brokers"]

CLUSTER_TIMEOUT_MS = 30_000
"""Longest wait for one answer of a broker about topics, offsets or metadata."""
_PLANNED_TIMEOUT_MS = 10_000
"""The same limit for a session with a plan, which can read without a broker."""
_PLANNED_PAUSE_S = 60.0
"""A session with a plan asks a broker that has not answered again after this time."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """The clients of one cluster.

    - `cluster` answers questions about topics and offsets.
    - `guard` asks the cluster, before each slice, for the READ permission, the topic id and the log start.
    - `reader` reads broker ranges. It is None if the caller of the session reads them.
    """

    cluster: Cluster
    guard: LogGuard
    reader: BrokerReader | None


def open_brokers(
    properties: Mapping[str, Any],
    settings: Settings,
    observe: Observer,
    *,
    shared: bool,
    log_starts: Mapping[TopicIdPartition, int] | None,
    may_be_cut: bool,
) -> Brokers | None:
    """The brokers that librdkafka's `properties` name; None if they name none.

    - `shared`: the caller reads broker ranges itself.
    - `log_starts` come with a plan that another session made. They are used if no broker answers. None: no such plan.
    - `may_be_cut` is that of `LogGuard`.
    """
    if "bootstrap.servers" not in properties:
        return None
    from remote_fetch.session.broker import BrokerReader  # noqa: PLC0415 - librdkafka is loaded for it
    from remote_fetch.session.guard import LogGuard, Patience  # noqa: PLC0415 - as above

    is_planned = log_starts is not None
    timeout_ms = _PLANNED_TIMEOUT_MS if is_planned else CLUSTER_TIMEOUT_MS
    cluster = make_cluster(properties, timeout_ms, checks=not is_planned and not shared)
    skips = reset_of(properties, "") == "earliest"
    patience = Patience(blind_s=math.inf, slice_pause_s=_PLANNED_PAUSE_S) if is_planned else None
    guard = LogGuard(cluster, observe, skips=skips, may_be_cut=may_be_cut, patience=patience)
    for partition, log_start in (log_starts or {}).items():
        guard.remember(partition, log_start)
    give_up_s = settings.broker_timeout_ms / 1000 or None
    return Brokers(cluster, guard, None if shared else BrokerReader(cluster, guard, observe, give_up_s=give_up_s))


def make_cluster(
    properties: Mapping[str, Any],
    timeout_ms: int = CLUSTER_TIMEOUT_MS,
    *,
    checks: bool,
    servers_key: str = "bootstrap.servers",
) -> Cluster:
    """A client of the cluster. It connects for the first question."""
    from remote_fetch.locate.cluster import Cluster  # noqa: PLC0415 - librdkafka is loaded for it

    return Cluster(properties, timeout_ms=timeout_ms, checks=checks, servers_key=servers_key)

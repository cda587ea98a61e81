"""The errors of a metadata topic that cannot be read, as Unlocatable: reading goes on through the broker."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import BrokerUnavailable, Unlocatable
from remote_fetch.failures.broker_errors import is_refusal

__all__ = ["Denied", "Unreadable", "denied", "unlocatable"]


class Unreadable(Unlocatable):
    """The topic does not exist or may not be read. That lasts until an administrator changes it."""


class Denied(Unreadable):
    """This principal may not read the topic."""


def denied(name: str) -> Denied:
    """The error of a topic that this principal may not read."""
    return Denied(
        f"this principal may not read {name}", hint=f"Grant READ on the topic {name}, or read through the broker"
    )


def unlocatable(error: BrokerUnavailable | KafkaException | Unlocatable, name: str) -> Unlocatable:
    """The error of the cluster that keeps the metadata topic of this name, as Unlocatable. An Unlocatable is kept."""
    if isinstance(error, Unlocatable):
        return error
    if isinstance(error, BrokerUnavailable):
        return Unlocatable(f"{name} cannot be read: {error.message}")
    if is_refusal(error):
        return denied(name)
    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return Unreadable(
            f"there is no topic {name}: tiered storage is off, or its metadata is kept elsewhere",
            hint="If it has another name or lives on another cluster, give remote.locator.topic and "
            "remote.locator.bootstrap.servers",
        )
    return Unlocatable(f"{name} cannot be read: {error.args[0].str()}")

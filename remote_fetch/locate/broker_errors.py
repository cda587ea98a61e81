"""What a broker's error says about the question: whether it may be asked again, and of whom.

Rules of the file: it looks at the error's code only. Who asks decides how often, and how long.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

__all__ = ["is_of_another_leader", "is_passing", "is_refusal"]

_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,  # also of a partition that has no leader yet; a topic that is gone says so
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,  # of a client that has not heard of the new leader yet
        KafkaError.KAFKA_STORAGE_ERROR,  # of a disk that has failed: another leader follows
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,  # of a leader that does not know the high watermark yet (KIP-207)
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # of a broker that has not heard of the new leader yet
    }
)
_OTHER_LEADER = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors of a client that knows another leader, or another epoch of it, than the brokers do."""


def is_passing(error: KafkaException) -> bool:
    """Whether a broker is away, or not ready to answer yet, as while a leader is being elected."""
    return error.args[0].code() in _PASSING


def is_refusal(error: KafkaException) -> bool:
    """Whether a broker refused for want of permission."""
    return error.args[0].code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )


def is_of_another_leader(error: KafkaException) -> bool:
    """Whether the client knows another leader than the brokers do, or another epoch of it."""
    return error.args[0].code() in _OTHER_LEADER

"""Classifies the errors of brokers: whether a request may be repeated, and whether the leader has changed. Tells them.

Rules of the file:

- Only the code of an error counts.
- The caller decides how often and how long it repeats a request.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

__all__ = ["broker_says", "is_of_another_leader", "is_passing", "is_refusal", "is_unanswered", "is_unreadable"]

_PASSING = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,  # also if a partition has no leader yet; a deleted topic has its own error
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,  # the client does not know the new leader yet
        KafkaError.KAFKA_STORAGE_ERROR,  # a disk has failed: another leader follows
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,  # the leader does not know the high watermark yet (KIP-207)
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # the broker does not know the new leader yet
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
"""Errors of a client whose leader, or leader epoch, differs from that of the brokers."""
_NO_ANSWER = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
)
_UNREADABLE = frozenset(
    {
        KafkaError._BAD_COMPRESSION,
        KafkaError._BAD_MSG,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.INVALID_MSG,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)


def is_unreadable(error: KafkaError) -> bool:
    """Whether librdkafka cannot decode records of the broker.

    It passes over a message of format v0 or v1, and fetches a batch again and again.
    """
    return error.code() in _UNREADABLE


def is_passing(error: KafkaException) -> bool:
    """Whether the error is expected to pass: a broker is away, or a leader is being elected."""
    return error.args[0].code() in _PASSING


def is_refusal(error: KafkaException) -> bool:
    """Whether the broker refused because a permission is missing."""
    return error.args[0].code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )


def is_of_another_leader(error: KafkaException) -> bool:
    """Whether the client's leader, or its leader epoch, differs from that of the brokers."""
    return error.args[0].code() in _OTHER_LEADER


def is_unanswered(error: KafkaException) -> bool:
    """Whether the error is the client's own, because no broker answered."""
    return error.args[0].code() in _NO_ANSWER


def broker_says(error: KafkaException) -> str:
    """The text of a broker's error, or of the client's if no broker answered."""
    said = error.args[0]
    if not is_unanswered(error):
        return f"the broker says: {said.str()}"
    return f"no answer from the brokers: {said.str()}. Check bootstrap.servers (-b), security.protocol, and the network"

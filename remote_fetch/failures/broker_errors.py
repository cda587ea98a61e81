"""Classifies the errors of brokers, such as whether a request may be repeated, and puts them into words.

Rules of the file:

- Only the code of an error counts. The text counts if librdkafka tells something there alone: the end of a truncated
  log, and which request has failed.
- The caller decides how often and how long it repeats a request.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException, libversion

from remote_fetch.errors import MissingExtra

__all__ = [
    "NO_ANSWER",
    "BrokerStalled",
    "asks_no_more",
    "broker_says",
    "end_of_truncated_epoch",
    "is_of_another_leader",
    "is_of_no_topic",
    "is_of_state",
    "is_passing",
    "is_refusal",
    "is_refused_offset",
    "is_truncation",
    "is_unanswered",
    "is_unreadable",
    "lacks_epoch",
    "lacks_token",
    "refusal_of",
]

if libversion()[1] < 0x02100000:
    # Its classes lack names that the modules of this package use. Those names would be all that an error tells.
    raise MissingExtra(
        f"remote-fetch needs confluent-kafka 2.16 or later, and the one here has librdkafka {libversion()[0]}",
        hint='Install it into this environment: pip install --upgrade "confluent-kafka>=2.16"',
    )

NO_ANSWER = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,  # the brokers do not list it any more, and it took a request with it
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)
"""The client's own errors, because no broker answered."""
_PASSING = NO_ANSWER | frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # also if a partition has no leader yet; a deleted topic has its own error
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,  # a group has another coordinator, which reads its offsets
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,  # the client does not know the new leader yet
        KafkaError.KAFKA_STORAGE_ERROR,  # a disk has failed: another leader follows
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,  # the client does not know the new coordinator yet
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,  # the leader does not know the high watermark yet (KIP-207)
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # the broker does not know the new leader yet
    }
)
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
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
_TRUNCATED = re.compile(r"log truncation detected at .*: broker end offset is (\d+) ")
"""librdkafka 2.1 to 2.16. Its error for a truncated log has the offset in no other place."""


class BrokerStalled(KafkaException):
    """The broker answers, but does not give what its log has. `was_hurried`: it had less time than is configured."""

    def __init__(self, error: KafkaError, *, was_hurried: bool = False) -> None:
        super().__init__(error)
        self.was_hurried = was_hurried


def is_truncation(text: str) -> bool:
    """Whether a text of librdkafka's _AUTO_OFFSET_RESET tells that the log was truncated (KIP-320)."""
    return "log truncation detected" in text and not lacks_epoch(text)


def lacks_epoch(text: str) -> bool:
    """Whether a text of _AUTO_OFFSET_RESET tells that the leader knows no such leader epoch: nothing was compared."""
    return text.startswith("No epoch found")


def end_of_truncated_epoch(text: str) -> int | None:
    """The offset at which a truncated log parts from what a consumer has read. None: the error has another cause.

    `text` is that of librdkafka's _AUTO_OFFSET_RESET. A leader was elected that lacks records, and others have these
    offsets now (KIP-320). librdkafka goes on at this offset if `auto.offset.reset` is not `error`.
    """
    found = _TRUNCATED.search(text)
    return None if found is None else int(found[1])


def asks_no_more(error: KafkaError) -> bool:
    """Whether librdkafka got no committed offsets for an assignment, and the cause passes.

    librdkafka (2.16) does not ask again: neither for these partitions, nor for others while these are assigned.
    """
    return error.code() in _PASSING and error.str().startswith("Failed to fetch committed offsets for ")


def is_refused_offset(error: KafkaError) -> bool:
    """Whether librdkafka refuses an offset: the log does not have it, has parted before it, or was not compared."""
    return error.code() == KafkaError._AUTO_OFFSET_RESET


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


def lacks_token(error: KafkaException) -> bool:
    """Whether confluent_kafka could not make a client, because its `oauth_cb` gave no token in time."""
    return bool(error.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED)


def refusal_of(operation: str, topic: str, code: int = KafkaError.TOPIC_AUTHORIZATION_FAILED) -> KafkaException:
    """The error of a missing permission that names the operation and the topic."""
    return KafkaException(KafkaError(code, f"this principal may not {operation} topic {topic}"))


def is_of_another_leader(error: KafkaException) -> bool:
    """Whether the client's leader, or its leader epoch, differs from that of the brokers."""
    return error.args[0].code() in _OTHER_LEADER


def is_of_state(error: KafkaException) -> bool:
    """Whether librdkafka refuses a call in the state of the partition or of the group.

    It has not assigned the partition yet, has stopped it, or the group rebalances eagerly.
    """
    return bool(error.args[0].code() == KafkaError._STATE)


def is_of_no_topic(error: KafkaException) -> bool:
    """Whether there may be no such topic or partition, because it was deleted. It may also have no leader yet."""
    return error.args[0].code() in _NO_TOPIC


def is_unanswered(error: KafkaException) -> bool:
    """Whether the error is the client's own, because no broker answered."""
    return error.args[0].code() in NO_ANSWER


def broker_says(error: KafkaException) -> str:
    """The text of a broker's error, or of the client's if no broker answered."""
    said = error.args[0]
    if isinstance(error, BrokerStalled):
        return f"{said.str()}. See the log of the leader; remote-fetch audit names the objects that the tier lacks"
    if said.code() == KafkaError._UNKNOWN_PARTITION:  # librdkafka has no other word for it
        return f"a partition has no leader, or it is gone: {said.str()}. Describe the topic, and see its brokers' logs"
    if not is_unanswered(error):
        refused = KafkaError(said.code()).str()
        is_told = refused.removeprefix("Broker: ") in said.str()  # a broker's own text has no "Broker: "
        of_this = is_refusal(error) and not is_told  # a text of this package tells only what was asked
        return f"the broker says: {refused}: {said.str()}" if of_this else f"the broker says: {said.str()}"
    return f"no answer from the brokers: {said.str()}. Check bootstrap.servers (-b), security.protocol, and the network"

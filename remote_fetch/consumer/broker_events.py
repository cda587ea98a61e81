"""Looks at the errors and events that librdkafka gives as messages: some of them only reset a partition.

Rules of the file:

- Only the application's thread uses it.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from remote_fetch.consumer.assigned import key_of_message
from remote_fetch.consumer.offsets import INVALID
from remote_fetch.consumer.partitions import Partitions
from remote_fetch.consumer.settings import ResetPolicy
from remote_fetch.consumer.states import Mode
from remote_fetch.failures.broker_errors import asks_no_more, end_of_truncated_epoch

__all__ = ["BrokerEvents"]

_RESET, _END, _FATAL = KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF, KafkaError._FATAL


class BrokerEvents:
    """The errors and events of one consumer. `policy` is the application's `auto.offset.reset`."""

    def __init__(self, partitions: Partitions, policy: ResetPolicy) -> None:
        self._partitions = partitions
        self._policy = policy

    def is_reset(self, message: Message) -> bool:
        """Look at a message of librdkafka. Returns whether it only resets its partition: it is not for the application.

        That is so if an offset is out of range, and the application wants a reset. It stays so after the partition was
        given back: librdkafka keeps the error. After a fatal error librdkafka calls no callback for what it drops.
        """
        error = message.error()
        if error is not None and error.code() == _FATAL:
            self._partitions.settle()
        if error is not None and asks_no_more(error):
            self._partitions.ask_again()
        if error is None or error.code() not in (_RESET, _END):
            return False
        if error.code() == _RESET and self._policy is not ResetPolicy.ERROR:
            return True
        partition = self._partitions.assigned.get(key_of_message(message))
        if partition is None:
            return False
        if error.code() == _END:
            partition.enter(partition.state.at_end(message.offset() or 0))
        else:
            partition.enter(partition.state.stopped())
        return False

    def reset(self, message: Message) -> None:
        """Reset the partition of a message for which `is_reset` is true."""
        partition = self._partitions.assigned.get(key_of_message(message))
        # In another mode the partition was reset or taken over before.
        if partition is not None and partition.state.mode is Mode.BROKER:
            offset, error = message.offset(), message.error()
            end = None if error is None else end_of_truncated_epoch(error.str())
            self._partitions.reset(partition, INVALID if offset is None else offset, end)

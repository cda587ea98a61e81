"""Sorts the messages that a consumer of librdkafka gives, and turns its records into Arrow columns.

Rules of the file:

- Nothing here asks a broker.
- Records that librdkafka cannot decode are an error, because it passes over some of them. Later messages are dropped.
- `unreadable` makes the error when it is raised. If a Polled held it, the error would hold the Polled by its traceback.
  So both would stay, and with them the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message

from remote_fetch.decode.arrays import Array, bytes_array, headers_array, numbers_array
from remote_fetch.decode.columns import microseconds, schema_for
from remote_fetch.errors import UnsupportedFormat
from remote_fetch.failures.broker_errors import is_refused_offset, is_unreadable
from remote_fetch.locate.answers import leader_epoch_of

__all__ = ["Polled", "batch_of_messages", "timestamp_ms", "unreadable"]


class Polled:
    """The messages of one call of `consume`, sorted.

    - `records` are those before the first one that librdkafka cannot decode. `damage` is the message about that one.
    - `refusals` are errors of `is_refused_offset`.
    - `cause` is the last error that librdkafka handles: it tries again. A refusal is one too.

    Raises KafkaException for an error that librdkafka does not handle.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.records: list[Message] = []
        self.refusals: list[Message] = []
        self.damage: Message | None = None
        self.cause: KafkaError | None = None
        self._ends: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                self.records.append(message)
            elif is_unreadable(error):
                self._ends.append(message)
                self.damage = message
                break
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends.append(message)
            elif is_refused_offset(error):
                self.refusals.append(message)
                self.cause = error
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED or error.fatal():
                raise KafkaException(error)
            else:
                self.cause = error

    def reaches(self, offset: int) -> bool:
        """Whether a record, the end of the log or the damage is at `offset` or after it."""
        return any((message.offset() or 0) >= offset for message in (*self.records, *self._ends))


def unreadable(damage: Message) -> KafkaException:
    """The error to raise for the `damage` of a Polled."""
    error, place = damage.error(), f"{damage.topic()}-{damage.partition()}, offset {damage.offset()}"
    assert error is not None, "`Polled` found it"
    return KafkaException(KafkaError(error.code(), f"{error.str()} [{place}, as the broker gives it]"))


def batch_of_messages(messages: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    """Records of confluent_kafka as an Arrow batch. Raises ConfigError for an unknown column, and UnsupportedFormat."""
    schema = schema_for(columns)
    arrays = [_column(name, schema.field(name).type, messages) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# Never `message.headers()`. For a key that is not UTF-8, `c_headers_to_py` of confluent_kafka (seen in 2.16.1) sets an
# exception and still returns its list, with NULL for the key. The interpreter's generic call turns that into a
# SystemError. A call site that CPython (3.11 and later) has specialised for a method of C does not check, and the first
# use of the list kills the process. A methodcaller always takes the generic call. Ask a message once: it keeps the
# list, and returns it a second time without an exception.
_client_headers = methodcaller("headers")


def _headers(message: Message) -> Sequence[tuple[str, bytes | None]]:
    """A key ends at its first NUL, because the client holds it as a C string."""
    try:
        headers = _client_headers(message)
    except (SystemError, UnicodeDecodeError) as error:
        raise UnsupportedFormat(
            "a header key of the record is not UTF-8, and the client cannot give it",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            hint="Leave the column headers out, or read the record from the store with fetch.remote.when=always",
        ) from error
    return headers or ()


def timestamp_ms(message: Message) -> int:
    """A record of magic 0 has no timestamp: Kafka says -1, the client 0."""
    kind, milliseconds = message.timestamp()
    return -1 if kind == TIMESTAMP_NOT_AVAILABLE else int(milliseconds)


_FIELDS: dict[str, Any] = {
    "key": lambda message: message.key(),
    "value": lambda message: message.value(),
    "topic": lambda message: message.topic().encode(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
    "timestamp": lambda message: microseconds(timestamp_ms(message)),
    "timestampMs": timestamp_ms,
    # librdkafka numbers from "not available", Kafka from CreateTime.
    "timestampType": lambda message: message.timestamp()[0] - 1,
    "headers": _headers,
    "leaderEpoch": leader_epoch_of,
}


def _column(name: str, arrow_type: pa.DataType, messages: Sequence[Message]) -> Array:
    values = [_FIELDS[name](message) for message in messages]
    if name == "headers":
        return headers_array(values)
    return bytes_array(values, arrow_type) if name in ("key", "value", "topic") else numbers_array(values, arrow_type)

"""Everything this package raises, as a tree by what a handler does about it.

    RemoteFetchError
    |-- RetriableError                 try the same call again, a little later
    |   |-- StorageThrottled           the store answered 429 or 503: slow down
    |   `-- StorageUnavailable         refused, reset, or broken off: may pass
    |-- FallsBackError                 this stretch cannot be read remotely: ask the broker
    |   |-- SegmentNotFound            an object that metadata promises is not there
    |   |-- StorageDenied              401 or 403, or an expired URL
    |   |-- StorageTimeout             a deadline of this package ran out
    |   |   `-- StorageConnectTimeout  before there was a connection
    |   |-- CorruptSegment             bytes that no Kafka broker writes
    |   |-- UnsupportedFormat          a format, codec or version that this release does not read
    |   |-- DecompressionLimit         a batch that inflates beyond the configured bound
    |   |-- EpochMismatch              a batch of a leader epoch that the log's lineage does not have there
    |   `-- Unlocatable                no readable segment covers these offsets
    `-- FatalError                     the caller has to change something
        |-- ConfigError                a configuration key or value is wrong
        |-- MissingExtra               an optional dependency is not installed
        |-- UnknownTopic               no such topic, partition or topic id here
        |   `-- TopicRecreated         the topic was deleted and made again while it was being read
        |-- OffsetOutOfRange           a bound lies outside the log
        |-- LogTruncated               the log lost records that the read had given, in an unclean leader election
        |-- BrokerUnavailable          no broker answers at the address that is configured
        |-- TableRefused               a table or its catalog did not take a commit
        |-- UndecodableValue           a key or value is not of its format or does not fit its schema
        |-- UnknownSchema              the schema registry does not know a subject or a version
        |-- RegistryDenied             the schema registry refuses the credentials
        |-- RegistryUnavailable        no schema registry answers at the address that is configured
        `-- Cancelled                  the read was closed while waiting

Rules of the file:

- This module imports nothing of the package.
- Every error pickles with its data.
- `kind` values are append-only, because metrics and users' code contain them.
- Messages never hold secrets.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Self

__all__ = [
    "BrokerUnavailable",
    "Cancelled",
    "ConfigError",
    "CorruptSegment",
    "DecompressionLimit",
    "EpochMismatch",
    "ErrorKind",
    "FallsBackError",
    "FatalError",
    "LogTruncated",
    "MissingExtra",
    "OffsetOutOfRange",
    "RegistryDenied",
    "RegistryUnavailable",
    "RemoteFetchError",
    "RetriableError",
    "SegmentNotFound",
    "StorageConnectTimeout",
    "StorageDenied",
    "StorageThrottled",
    "StorageTimeout",
    "StorageUnavailable",
    "TableRefused",
    "TopicRecreated",
    "UndecodableValue",
    "UnknownSchema",
    "UnknownTopic",
    "Unlocatable",
    "UnsupportedFormat",
]


class ErrorKind(StrEnum):
    """Stable short names of the error classes, the `reason` of metrics (KIP-1254's fallback table, completed)."""

    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    NOT_FOUND = "not-found"
    AUTH = "auth"
    CONNECT_TIMEOUT = "connect-timeout"
    READ_TIMEOUT = "read-timeout"
    CORRUPT = "corrupt"
    FORMAT = "format"
    DECOMPRESSION_LIMIT = "decompression-limit"
    TRUNCATED = "truncated"
    UNLOCATABLE = "unlocatable"
    CONFIG = "config"
    MISSING_EXTRA = "missing-extra"
    UNKNOWN_TOPIC = "unknown-topic"
    OFFSET_OUT_OF_RANGE = "offset-out-of-range"
    CANCELLED = "cancelled"
    RECREATED = "recreated"
    NOT_CONFIGURED = "not-configured"
    BROKER_UNAVAILABLE = "broker-unavailable"
    TABLE = "table"
    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA = "unknown-schema"
    REGISTRY_AUTH = "registry-auth"
    REGISTRY_UNAVAILABLE = "registry-unavailable"
    LOG_TRUNCATED = "log-truncated"


class RemoteFetchError(Exception):
    """Base of all errors of this package.

    Data fields (all optional, None when unknown): `topic`, `partition`, `offset` (the record or batch offset the
    error is about), `object_name` (the object in the store, without credentials), `position` (byte position in the
    segment as Kafka wrote it) and `hint` (what the reader of the message can do). They are part of `str(error)`.

    Each class says what a handler may do: `kind` is its ErrorKind, `retriable` whether the same call may succeed later,
    `falls_back` whether a broker can be asked instead.
    """

    kind: ClassVar[ErrorKind]
    retriable: ClassVar[bool] = False
    falls_back: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        object_name: str | None = None,
        position: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.object_name = object_name
        self.position = position
        self.hint = hint

    def at(self, **where: Any) -> Self:
        """Fill in the context fields that are still unknown, and return the error itself.

        A pure parser knows only a position. Each caller adds what it knows, and keeps what nearer code has set.
        """
        for name, value in where.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        place = []
        if self.topic is not None and (self.partition is not None or repr(self.topic) not in self.message):
            place.append(self.topic if self.partition is None else f"{self.topic}-{self.partition}")
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        if self.object_name is not None:
            place.append(f"object {self.object_name}")
        if self.position is not None:
            place.append(f"position {self.position}")
        text = self.message if not place else f"{self.message} [{', '.join(place)}]"
        return text if self.hint is None else f"{text}. {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[RemoteFetchError], message: str, state: dict[str, Any]) -> RemoteFetchError:
    error = cls.__new__(cls)
    super(RemoteFetchError, error).__init__(message)  # ImportError keeps a field of its own
    error.__dict__.update(state)
    return error


class RetriableError(RemoteFetchError):
    """The same call may succeed a little later."""

    retriable = True
    falls_back = True


class StorageThrottled(RetriableError):
    """The store asked for fewer requests (429, 503 SlowDown)."""

    kind = ErrorKind.THROTTLED


class StorageUnavailable(RetriableError):
    """The store could not be reached, or broke off in the middle.

    `may_have_sent` is False if no part of a body can have come: there was no connection, or the answer was a failure
    (5xx). A budget of bytes does not count such a GET.
    """

    kind = ErrorKind.UNAVAILABLE

    def __init__(self, message: str, *, may_have_sent: bool = True, **where: Any) -> None:
        super().__init__(message, **where)
        self.may_have_sent = may_have_sent


class FallsBackError(RemoteFetchError):
    """The stretch cannot be read from the store. If a broker is configured, the read goes on through the broker."""

    falls_back = True


class SegmentNotFound(FallsBackError):
    """An object that the metadata promises is not in the store (404). Never the end of the data.

    `is_absent` is False if the name had another object before, or has one now (410, 412, replaced while it was read).
    So it is after a 404 that may be a proxy's. An index is then not proved to be missing.
    """

    kind = ErrorKind.NOT_FOUND

    def __init__(self, message: str, *, is_absent: bool = True, **where: Any) -> None:
        super().__init__(message, **where)
        self.is_absent = is_absent


class StorageDenied(FallsBackError):
    """The store refused the credentials or the URL (401, 403). On S3 also a missing object without ListBucket.

    `is_of_object` is True if the object alone is to blame: it is archived, or its key (KMS) cannot be used.
    """

    kind = ErrorKind.AUTH

    def __init__(self, message: str, *, is_of_object: bool = False, **where: Any) -> None:
        super().__init__(message, **where)
        self.is_of_object = is_of_object


class StorageTimeout(FallsBackError):
    """A deadline of this package ran out while waiting for the store."""

    kind = ErrorKind.READ_TIMEOUT


class StorageConnectTimeout(StorageTimeout):
    """A deadline of this package ran out before there was a connection to the store."""

    kind = ErrorKind.CONNECT_TIMEOUT


class CorruptSegment(FallsBackError):
    """The bytes break a rule that every Kafka broker keeps."""

    kind = ErrorKind.CORRUPT


class UnsupportedFormat(FallsBackError):
    """A magic, codec, layout or format version that this release does not read."""

    kind = ErrorKind.FORMAT


class DecompressionLimit(FallsBackError):
    """A compressed batch would inflate beyond the configured bound."""

    kind = ErrorKind.DECOMPRESSION_LIMIT


class EpochMismatch(FallsBackError):
    """A segment or batch does not belong to the log's history: it was truncated after an unclean leader election."""

    kind = ErrorKind.TRUNCATED


class Unlocatable(FallsBackError):
    """No readable segment covers the offsets `first` to `last` (both inclusive; `last` None: to the end)."""

    kind = ErrorKind.UNLOCATABLE

    def __init__(self, message: str, *, first: int | None = None, last: int | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.first = first
        self.last = last


class FatalError(RemoteFetchError):
    """Neither a retry nor the broker helps: the caller has to change something."""


class ConfigError(FatalError, ValueError):
    """A configuration key or value is wrong. `key` names it. `better` is the value that fits, if it is known."""

    kind = ErrorKind.CONFIG

    def __init__(self, message: str, *, key: str | None = None, better: str | None = None, **where: Any) -> None:
        super().__init__(message, **where)
        self.key = key
        self.better = better


class MissingExtra(FatalError, ImportError):
    """An optional dependency is not installed. The message names the package, `extra` the extra that brings it.

    With `extra` and without `hint` the hint is the command that installs the extra. The command needs remote-fetch to
    be installed, and then finds the extra in its metadata: no index has to know remote-fetch.
    """

    kind = ErrorKind.MISSING_EXTRA

    def __init__(self, message: str, *, extra: str | None = None, hint: str | None = None, **where: Any) -> None:
        if hint is None and extra is not None:
            hint = f'Install it into this environment: pip install "remote-fetch[{extra}]"'
        super().__init__(message, hint=hint, **where)
        self.extra = extra


class UnknownTopic(FatalError, LookupError):
    """The topic, partition or topic id is not there, or its name stands for several topic ids."""

    kind = ErrorKind.UNKNOWN_TOPIC


class TopicRecreated(UnknownTopic):
    """The name now belongs to another topic: the planned topic was deleted and made again."""

    kind = ErrorKind.RECREATED


class OffsetOutOfRange(FatalError, ValueError):
    """A start or end bound lies outside the log."""

    kind = ErrorKind.OFFSET_OUT_OF_RANGE


class LogTruncated(FatalError):
    """The log has lost records that the read had given, and has other ones: by an unclean leader election.

    `offset` is the first offset at which both are known to differ, None if the brokers do not tell it.
    """

    kind = ErrorKind.LOG_TRUNCATED


class BrokerUnavailable(FatalError):
    """No broker answers at the configured address. The message has the cause, as far as the client knows it.

    `is_refusal`: a broker has refused the credentials or the certificate.
    """

    kind = ErrorKind.BROKER_UNAVAILABLE

    def __init__(self, message: str, *, is_refusal: bool = False, **where: Any) -> None:
        super().__init__(message, **where)
        self.is_refusal = is_refusal


class TableRefused(FatalError):
    """A table or its catalog cannot be opened, or did not take a commit. Nothing of the commit is in the table."""

    kind = ErrorKind.TABLE


class UndecodableValue(FatalError, ValueError):
    """A record's key or value, `column`, does not decode. `reason` tells why, `schema` names the writer's schema."""

    kind = ErrorKind.UNDECODABLE

    def __init__(
        self,
        message: str,
        *,
        column: str | None = None,
        schema: str | None = None,
        reason: str | None = None,
        **where: Any,
    ) -> None:
        super().__init__(message, **where)
        self.column, self.schema, self.reason = column, schema, reason


class UnknownSchema(FatalError, LookupError):
    """The schema registry does not know a subject, or a version of it."""

    kind = ErrorKind.UNKNOWN_SCHEMA


class RegistryDenied(FatalError):
    """The schema registry refuses the credentials (401, 403)."""

    kind = ErrorKind.REGISTRY_AUTH


class RegistryUnavailable(FatalError):
    """No schema registry answers at the configured address within the time that a broker would have."""

    kind = ErrorKind.REGISTRY_UNAVAILABLE


class Cancelled(FatalError):
    """Another thread closed the read while this call was waiting."""

    kind = ErrorKind.CANCELLED

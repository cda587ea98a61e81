"""The frozen values that every stage of the reader passes on, under Kafka's own names.

Rules of the file:

- Only values. Their behaviour is to parse and print themselves.
- No store, no file, no clock.
- Units stand in the names.
- An offset is inclusive if Kafka's field is (`end_offset`). Ends of half-open ranges are called `end` or `stop`.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "MAX_OFFSET",
    "NO_EPOCH",
    "NO_ID",
    "OBJECT_KINDS",
    "TOPIC_NAME_RULE",
    "UNKNOWN_SIZE",
    "AbortedTransaction",
    "Buffer",
    "IndexType",
    "IsolationLevel",
    "LeaderEpoch",
    "LogBounds",
    "RemoteLogSegmentId",
    "RemoteLogSegmentMetadata",
    "RemoteLogSegmentState",
    "Survey",
    "TimestampType",
    "TopicIdPartition",
    "Uuid",
    "is_topic_name",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes between the stages: read only, contiguous, one byte an item."""

MAX_OFFSET = 2**63 - 2
"""The largest offset that is accepted. The offset after it also fits into 64 bits."""

TOPIC_NAME_RULE = "1 to 249 ASCII letters, digits, '.', '_' and '-', but not '.' or '..'"
"""Kafka's rule for the name of a topic, for messages."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

UNKNOWN_SIZE = 2**31 - 1
"""`segment_size_in_bytes` of a segment too large for the field (KIP-1333): the true size has to come from the store."""


@dataclass(frozen=True, slots=True, order=True)
class Uuid:
    """A Kafka `Uuid`: 16 bytes, printed as 22 characters of unpadded base64url."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 16:
            raise ValueError(f"a Uuid has 16 bytes, not {len(self.raw)}")

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """The Uuid of its 22-character text form. Raises ValueError for anything else."""
        try:
            raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"not a Kafka Uuid: {text!r}") from error
        if len(raw) != 16 or str(uuid := cls(raw)) != text:
            raise ValueError(f"not a Kafka Uuid (22 characters of base64url): {text!r}")
        return uuid

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.raw).rstrip(b"=").decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({self})"


NO_EPOCH = -1
"""Kafka's leader epoch of a batch, an answer or an upload that has none."""
NO_ID = Uuid(bytes(16))
"""Kafka's id of a topic whose id is not known."""


def is_topic_name(text: str) -> bool:
    """Whether Kafka allows a topic of this name (its Topic.validate): see `TOPIC_NAME_RULE`."""
    return _TOPIC_NAME.fullmatch(text) is not None and text not in (".", "..")


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """One partition of one topic *id*: a topic that is deleted and made again under its old name is another one."""

    topic_id: Uuid
    topic: str
    partition: int

    @classmethod
    def parsed(cls, topic_id: Uuid, topic: str, partition: int) -> TopicIdPartition:
        """The partition that foreign bytes name: a metadata record, a listing, a manifest, a saved file.

        Both values become parts of objects' names. Raises ValueError unless Kafka allows them: see `is_topic_name`;
        partitions are 0 to 2^31 - 1.
        """
        if not is_topic_name(topic):
            raise ValueError(f"{topic[:300]!r} is not a topic name: {TOPIC_NAME_RULE}")
        if not 0 <= partition < 2**31:
            raise ValueError(f"topic {topic!r} with partition {partition}: partitions are 0 to 2147483647")
        return cls(topic_id, topic, partition)

    @property
    def topic_partition(self) -> str:
        """TOPIC-PARTITION, the name of the partition for people. Another topic id may have the same one."""
        return f"{self.topic}-{self.partition}"

    @property
    def identity(self) -> bytes:
        """The topic id and the number, in 20 bytes. The name does not count."""
        return self.topic_id.raw + self.partition.to_bytes(4, "big")

    @property
    def place(self) -> dict[str, Any]:
        """The fields of an error about this partition."""
        return {"topic": self.topic, "partition": self.partition}

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a JSON object about this partition."""
        return {"topic": self.topic, "topic_id": str(self.topic_id), "partition": self.partition}

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.topic_partition}"


@dataclass(frozen=True, slots=True, order=True)
class RemoteLogSegmentId:
    """The identity of one upload of one segment; a repeated upload of the same offsets gets another `id`."""

    topic_id_partition: TopicIdPartition
    id: Uuid


class RemoteLogSegmentState(IntEnum):
    """Where a segment stands in its life (KIP-405). Only COPY_SEGMENT_FINISHED may be read."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


@dataclass(frozen=True, slots=True, order=True)
class LeaderEpoch:
    """Leader epoch `epoch` starts with the record at `start_offset`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """One remote segment (KIP-405's RemoteLogSegmentMetadata).

    - `start_offset` is the segment's base offset.
    - `end_offset` is the next segment's base offset - 1, so it is inclusive and may lie past the last record. It is -1
      if a listing cannot tell it.
    - `segment_size_in_bytes` counts the `.log` bytes as Kafka wrote them. `UNKNOWN_SIZE` and numbers below 1 mean
      unknown: the field of a metadata record has 32 bits, which cut off or wrap a larger size. A listing may know
      larger sizes. A broker never looks at the field when it reads.
    - `max_timestamp_ms` is -1 if it is unknown.
    - `segment_leader_epochs` ascends by epoch. It is empty if unknown, as in a bare listing.
    - `txn_index_empty` True: there is no transaction index. Kafka 4.0 and later set it. False: there may be one.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    segment_size_in_bytes: int
    max_timestamp_ms: int = -1
    event_timestamp_ms: int = -1
    broker_id: int = -1
    segment_leader_epochs: tuple[LeaderEpoch, ...] = ()
    custom_metadata: bytes | None = field(default=None, repr=False)
    state: RemoteLogSegmentState = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    txn_index_empty: bool = False

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The partition the segment belongs to."""
        return self.segment_id.topic_id_partition

    @property
    def object_stem(self) -> str:
        """START_OFFSET-ID, with 20 digits: the segment's name for people, and a part of its objects' names."""
        return f"{self.start_offset:020d}-{self.segment_id.id}"

    @property
    def place(self) -> dict[str, Any]:
        """The fields of an error about this segment."""
        return {**self.topic_id_partition.place, "object_name": self.object_stem}

    @property
    def size_known(self) -> bool:
        """Whether `segment_size_in_bytes` is a size, and not the mark of a larger or unknown one."""
        return 0 < self.segment_size_in_bytes != UNKNOWN_SIZE

    @property
    def known_size_bytes(self) -> int | None:
        """`segment_size_in_bytes`, None if it is unknown."""
        return self.segment_size_in_bytes if self.size_known else None

    @property
    def likely_size_bytes(self) -> int:
        """`segment_size_in_bytes` for estimates. A negative number belongs to a segment too large for the field."""
        return UNKNOWN_SIZE if self.segment_size_in_bytes < 0 else self.segment_size_in_bytes


class IndexType(StrEnum):
    """The files that Kafka uploads beside a segment (RemoteStorageManager.IndexType)."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    PRODUCER_SNAPSHOT = "producer-snapshot"
    TRANSACTION = "transaction"
    LEADER_EPOCH = "leader-epoch"


OBJECT_KINDS: tuple[str, ...] = ("log", *(index_type.value for index_type in IndexType))
"""The kinds of a segment's objects: the log, and the files beside it."""


class IsolationLevel(StrEnum):
    """`isolation.level` of a consumer, in Kafka's spelling."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class TimestampType(IntEnum):
    """The meaning of a record's timestamp, with the numbers of Spark's Kafka source and the Java client."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True, order=True)
class AbortedTransaction:
    """One entry of a transaction index: the producer's records in [`first_offset`, `last_offset`] were aborted.

    `last_offset` is the offset of the abort marker; `last_stable_offset` the last stable offset once it was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The ends of a partition. None: unknown.

    `log_start_offset` is the first readable offset. `end_offset` is one past the last readable offset for the isolation
    level of the question.
    """

    log_start_offset: int | None = None
    end_offset: int | None = None


class Survey(NamedTuple):
    """A description of the place where a storage was expected.

    `place` is the URL without secrets. `found` describes its contents in a few words. It is None if the place has names
    of the layout. `hint` names a better configuration, if one can be seen, and `better` is its key with the value,
    which may be a URL with secrets.
    """

    place: str
    found: str | None = None
    hint: str | None = None
    better: tuple[str, str] | None = None

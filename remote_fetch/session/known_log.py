"""The log that a read gives records of. It shows that the brokers have another log after an unclean leader election.

Rules of the file:

- A read gives records of one log. An offset with its leader epoch names the log up to there: two logs that have both in
  common are equal up to there (KIP-101).
- librdkafka compares (OffsetForLeaderEpoch, KIP-320): at a seek with a leader epoch, and again when the leader changes.
- A log that has parted ends the read with LogTruncated. If the brokers do not tell, reading goes on.
- A lineage comes from the store, and may be wrong about the past. If the log still has the end of the lineage, it has
  all records of the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaException, Message, TopicPartition

from remote_fetch.deadline import Deadline, retry
from remote_fetch.errors import LogTruncated
from remote_fetch.failures.broker_errors import end_of_truncated_epoch, is_of_state, is_truncation, lacks_epoch
from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate.answers import leader_epoch_of
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import TopicIdPartition
from remote_fetch.session.guard import READ_AGAIN, LogGuard

__all__ = ["KnownLog"]

_ASSIGNED_S = 5.0
"""How long librdkafka may take to assign a partition. Until then it refuses a seek. It takes milliseconds."""
_SEEK_AGAIN_S = 0.005


class KnownLog:
    """The log of one partition, for a range of the broker from `first_offset` on.

    `offset` is the one behind the last record that the broker gave. If it gave none yet, it is `first_offset`.

    `lineage` has the leader epochs of the records that the store gives, before the range or after it. If it is unknown,
    the store gives none, and the first request is that of any consumer. It may end before the range: then other tasks
    read what lies between.
    """

    def __init__(self, guard: LogGuard, partition: TopicIdPartition, first_offset: int, lineage: Lineage) -> None:
        self._guard = guard
        self.partition = partition
        self._lineage = lineage
        self.offset = first_offset
        self._known_end = first_offset if lineage.end_offset is None else min(first_offset, lineage.end_offset)
        self._epoch = lineage.epoch_for(self._known_end - 1)
        self._is_compared = False

    @property
    def wants_comparison(self) -> bool:
        """Whether librdkafka has not been asked to compare the log up to the last known record."""
        return self._epoch is not None and not self._is_compared

    def assign(self, consumer: Consumer, offset: int, log_end: int) -> None:
        """Assign the partition at `offset`. If the leader epoch before it is known, let librdkafka compare the log.

        librdkafka (2.16) compares at a seek, and not at every assignment. It compares before it fetches. So an offset
        after `log_end` may be sought, but not assigned: a log that has become shorter may have parted.
        """
        consumer.assign([self.place(offset if self._epoch is None else min(self.offset, log_end))])
        if not self.compare(consumer):
            consumer.assign([self.place(offset)])

    def place(self, offset: int) -> TopicPartition:
        """The partition at `offset`, for an assignment."""
        return TopicPartition(self.partition.topic, self.partition.partition, offset)

    def compare(self, consumer: Consumer) -> bool:
        """Let librdkafka compare the log, if the leader epoch is known. False: librdkafka takes no seek."""
        if self._epoch is None:
            return True
        topic, number = self.partition.topic, self.partition.partition
        target = TopicPartition(topic, number, self.offset, leader_epoch=self._epoch)
        self._is_compared = True
        try:
            retry(
                lambda: consumer.seek(target),
                KafkaException,
                until=Deadline.after(_ASSIGNED_S),
                pause_s=_SEEK_AGAIN_S,
                may_pass=is_of_state,
            )
        except KafkaException as error:
            if not is_of_state(error):
                raise
            return False
        return True

    def passed_over(self, log_start: int) -> None:
        """Note the log start. The last known record may be deleted, and there is nothing to compare before it."""
        if self.offset < log_start:
            self._epoch = None

    def took(self, records: Sequence[Message]) -> None:
        """Note records of the broker, before they are given. Raises LogTruncated if the store's log has others there.

        All of them are of one log. So the first and the last one tell: between them the leader epoch never falls.
        """
        for record in (records[0], records[-1]):
            offset, epoch = record.offset() or 0, leader_epoch_of(record)
            if not (self._lineage.agrees(offset, epoch) or self._lineage_errs(offset)):
                raise self._truncated(f"the broker's record {offset} is of leader epoch {epoch}", offset)
        self.offset = self._known_end = offset + 1
        self._epoch = epoch if epoch >= 0 else None
        self._is_compared = False

    def heed(self, message: Message) -> bool:
        """Look at a message that refuses an offset. Raises LogTruncated if it tells that the log has parted.

        Returns whether it tells that nothing was compared, or that the log has all known records: another leader may
        have written the records between these and the range. The next assignment compares nothing then.
        """
        error = message.error()
        text = "" if error is None else error.str()
        parting = end_of_truncated_epoch(text)
        has_known = parting is not None and parting >= self._known_end
        if has_known or lacks_epoch(text) or (is_truncation(text) and self._lineage_errs(self._known_end)):
            self._epoch = None
            return True
        if is_truncation(text):
            raise self._truncated(text, parting)
        return False

    def _lineage_errs(self, offset: int) -> bool:
        """Whether the log has the end of the lineage. Then the lineage is wrong about `offset`, and is forgotten."""
        end = self._lineage.end_offset
        last = None if end is None else self._lineage.epoch_for(end - 1)
        if end is None or last is None or offset >= end or not self._guard.still_holds(self.partition, last, end):
            return False
        self._lineage = Lineage.unknown()
        return True

    def _truncated(self, why: str, parting: int | None) -> LogTruncated:
        since = "" if parting is None else f" from offset {parting} on"
        return LogTruncated(
            f"the log has other records{since} than this read: an unclean leader election has cut it off ({why})",
            offset=parting,
            hint=READ_AGAIN,
            **self.partition.place,
        )

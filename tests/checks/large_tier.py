"""An audit of a tier that exists only as names and records: `python -m tests.checks.large_tier SEGMENTS`, a JSON line.

Rules of the file:

- Objects and records are made one by one, so that what memory is used is the audit's.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from fetchers.layouts.kafka_local import KafkaLocalLayout
from remote_fetch.checks.audit import Audit
from remote_fetch.checks.audit_sources import AuditOptions, AuditSources
from remote_fetch.errors import SegmentNotFound
from remote_fetch.fetch.inventory import ExpectedObject
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.formats.metadata_records import SegmentMetadataRecord, SegmentUpdateRecord
from remote_fetch.locate.replay import Replay
from remote_fetch.model import (
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record

__all__ = ["LargeTier"]

_PARTITIONS = 10
_OFFSETS = 1_000
_BYTES = 1_000_000
_LOST_EACH = 1_000


class LargeTier:
    """`count` finished segments of one topic, in ten partitions. The log of every thousandth one is lost."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._layout = KafkaLocalLayout()
        self._layout.configure({"remote.storage.url": "/tier/kafka-tiered-storage"})
        self._topic_id = Uuid(b"a topic's own id")

    def segments(self) -> Iterator[RemoteLogSegmentMetadata]:
        """The segments, in the order in which brokers upload them."""
        for number in range(self.count):
            partition = TopicIdPartition(self._topic_id, "large", number % _PARTITIONS)
            segment_id = RemoteLogSegmentId(
                partition, Uuid(((number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16, "big"))
            )
            start = number // _PARTITIONS * _OFFSETS
            yield RemoteLogSegmentMetadata(
                segment_id, start, start + _OFFSETS - 1, _BYTES, number, number, 1, (LeaderEpoch(0, start),),
                state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            )  # fmt: skip

    def list_objects(self) -> Iterator[ObjectInfo]:
        """As `ObjectInventory.list_objects`."""
        for number, segment in enumerate(self.segments()):
            for expected in self.expected_objects(segment):
                is_log = expected.kinds == ("log",)
                if not (is_log and number % _LOST_EACH == 0):
                    yield ObjectInfo(expected.name, _BYTES if is_log else 24 * 17)

    def expected_objects(self, metadata: RemoteLogSegmentMetadata) -> Sequence[ExpectedObject]:
        """As `ObjectInventory.expected_objects`."""
        return self._layout.expected_objects(None, metadata)  # type: ignore[arg-type]

    def segment_of(self, name: str) -> RemoteLogSegmentId | None:
        """As `ObjectInventory.segment_of`."""
        return self._layout.segment_of(name)

    def object_size(self, name: str) -> int | None:
        """As `ObjectInventory.object_size`, of an object that is lost."""
        raise SegmentNotFound(name)

    def open_records(self, new_replay: Callable[[Uuid | None], Replay]) -> Callable[[], object]:
        """As `AuditSources.open_records`."""
        replay, passes = new_replay(None), iter([self.count])

        def read() -> None:
            if next(passes, None) is None:
                return
            for number, segment in enumerate(self.segments()):
                value = encode_metadata_record(SegmentMetadataRecord(segment))
                replay.builder.apply(value, offset=2 * number)
                finished = SegmentUpdateRecord(segment.segment_id, 1, number, None, _FINISHED)
                replay.builder.apply(encode_metadata_record(finished), offset=2 * number + 1)

        return read

    def audit(self) -> Audit:
        """An audit of it, not yet begun."""
        sources = AuditSources(self, self.open_records, lambda _: self._topic_id, lambda _: 0)
        return Audit(sources, AuditOptions(None, 0))


_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def main(count: int) -> None:
    """Audit a tier of so many segments. Print the findings, the seconds, and the peak of memory in KiB."""
    began = time.monotonic()
    audit = LargeTier(count).audit()
    kinds = [finding.kind for finding in audit.findings()]
    found = {kind: kinds.count(kind) for kind in set(kinds)}
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"found": found, "segments": audit.totals[0].segments, "s": seconds, "peak_kib": peak_kib}))


if __name__ == "__main__":
    main(int(sys.argv[1]))

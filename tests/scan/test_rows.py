"""The state that slices share, batch by batch. The rest of the module is tested with whole reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from remote_fetch.errors import CorruptSegment
from remote_fetch.formats.batches import BatchFramer
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.lineage import Lineage
from remote_fetch.plan.visibility import AbortedIntervals, SequentialAborts
from remote_fetch.scan.rows import PartitionRows, end_of
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.cases import each_of
from tests.scan.bucket import Bucket, expected_rows, read


@each_of("records", [[], [Record(0)]])
@each_of("aborted", [AbortedIntervals.of(()), SequentialAborts(())])
def test_a_marker_that_aborts_an_emptied_batch_contradicts_nothing(
    records: list[Record], aborted: AbortedIntervals | SequentialAborts
) -> None:
    """The log cleaner keeps the header of a producer's last batch. No record of the transaction was given."""
    log = LogBuilder()
    log.begin(7)
    log.append_batch(records, last_offset_delta=4, producer_id=7)
    log.abort(7)
    framer = BatchFramer(0)
    framer.feed(memoryview(b"".join(batch.data for batch in log.batches)))
    batch, marker = framer.next_batch(), framer.next_batch()
    assert batch is not None
    assert marker is not None
    rows = PartitionRows("topic", 0, ("offset",), Lineage.unknown(), aborted, 0)
    assert rows.shows(batch.header) == bool(records)
    if records:
        with pytest.raises(CorruptSegment, match="producer 7 from offset 0 was aborted at offset 5"):
            rows.see_marker(marker, Codecs())
    else:
        rows.see_marker(marker, Codecs())


@each_of(("columns", "end"), [({"offset": [3, 5]}, 6), ({"offset": []}, 9), ({"value": [b"v"]}, 9)])
def test_the_end_of_a_batch(columns: dict[str, Any], end: int) -> None:
    assert end_of(pa.record_batch(columns), 9) == end


def test_batches_that_are_read_alone_and_are_more_than_a_group() -> None:
    """Their reader gives the rows of a full group at once. Those of fewer batches wait until the end."""
    log = LogBuilder()
    for _ in range(5):
        log.append_legacy([Record(0, value=bytes(600_000))], magic=1)
    log.roll()
    assert read(Bucket(log.segments())).fine() == expected_rows(log.records())

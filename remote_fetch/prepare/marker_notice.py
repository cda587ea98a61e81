"""Reports that a time came to a transaction marker, behind which the records are older.

Rules of the file:

- A marker has the clock of its broker. Its answer is that of a broker too, so it is reported and not changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from remote_fetch.errors import RemoteFetchError
from remote_fetch.formats.batches import FramedBatch
from remote_fetch.model import TopicIdPartition
from remote_fetch.observe import Notice, Observer

__all__ = ["say_older"]

_PASSED_MARKERS = 16
"""How many batches behind a marker are looked at for one of records. Transactions may end together."""


def say_older(
    observe: Observer, partition: TopicIdPartition, marker: int, after: Iterator[FramedBatch], timestamp_ms: int
) -> None:
    """Report if the batch of records after a marker, the answer of a search, is older than the wanted time."""
    try:
        headers = (batch.header for batch in islice(after, _PASSED_MARKERS))
        header = next((header for header in headers if not header.is_control), None)
    except RemoteFetchError:  # the answer does not need it: the read will raise this if it comes there
        return
    if header is not None and 0 <= header.max_timestamp_ms < timestamp_ms:
        observe(
            Notice(
                f"{partition.topic_partition}: the first record at or after the given time is the "
                f"transaction marker at offset {marker}, which has the broker's clock; records after it are older"
            )
        )

"""Asks a fetcher two things besides objects: how to list less, and what is at its URL if no segment was found.

Rules of the file:

- A fetcher that cannot survey, or may not list, causes no error here.
- A survey is made once, in its own thread. The caller waits for it no longer than a read may take.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from operator import attrgetter

from remote_fetch.errors import ErrorKind, StorageTimeout
from remote_fetch.fetch.credentials import Renewal
from remote_fetch.fetch.pool import DaemonPool
from remote_fetch.fetch.spi import PartitionLister, SegmentLister, StorageSurveyor
from remote_fetch.locate.listing import Listings
from remote_fetch.model import RemoteLogSegmentMetadata, Survey, TopicIdPartition
from remote_fetch.observe import Notice, Observer

__all__ = ["Surveyor", "listings_of", "surveyed"]


class Surveyor:
    """Reports once which objects are in the storage if none of them is a segment: the URL may be wrong."""

    def __init__(self, fetcher: object, observe: Observer, timeout_ms: int) -> None:
        self._fetcher = fetcher
        self._observe = observe
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._pool: DaemonPool | None = None

    def explain(self, kind: str, *, waits: bool = True) -> None:
        """Survey the storage after the first error of the kind `not-found`.

        If `waits` is false, the notice may come after this call has returned.
        """
        with self._lock:
            if kind != ErrorKind.NOT_FOUND or self._pool is not None:
                return
            self._pool = DaemonPool(1, "remote-fetch-survey")
            call = self._pool.submit(self._explain)
        if waits:
            with suppress(StorageTimeout):
                call.wait(self._timeout_ms)

    def _explain(self) -> None:
        survey = surveyed(self._fetcher)
        if survey is not None and survey.found is not None:
            hint = survey.hint or "Check remote.storage.url and remote.storage.layout"
            text = f"no segment is in the remote storage {survey.place}: {survey.found}. {hint}"
            self._observe(Notice(text, is_warning=True))

    def close(self) -> None:
        """Wait for a running survey, but no longer than a read may take. May be called twice."""
        with self._lock:
            pool = self._pool
        if pool is not None:
            pool.close(self._timeout_ms)


def surveyed(fetcher: object) -> Survey | None:
    """The survey of the fetcher's storage. None if the fetcher cannot survey or may not list, or fails in any way.

    A survey only explains: a read that goes on without the explanation is not ended by it.
    """
    try:
        return fetcher.survey() if isinstance(fetcher, StorageSurveyor) else None
    except Exception:
        return None


def listings_of(fetcher: SegmentLister, renewal: Renewal | None = None) -> Listings:
    """The listing functions of the fetcher, with those for single partitions if it has them.

    If the store refuses a listing, the credentials are looked up again. `renewal` is that of reads with the fetcher.
    """
    renewed = Renewal(fetcher) if renewal is None else renewal

    def segments(topic: str | None) -> Iterable[RemoteLogSegmentMetadata]:
        return renewed.listed(lambda: fetcher.list_segments(topic), _id_of) or ()

    def survey() -> Survey | None:
        return surveyed(fetcher)

    if not isinstance(fetcher, PartitionLister):
        return Listings(segments, survey=survey)
    lister: PartitionLister = fetcher

    def of_partition(partition: TopicIdPartition) -> Iterable[RemoteLogSegmentMetadata]:
        return renewed.listed(lambda: lister.list_partition(partition), _id_of) or ()

    def partitions(topic: str | None) -> Iterable[TopicIdPartition] | None:
        return renewed.listed(lambda: lister.list_partitions(topic), lambda partition: partition)

    return Listings(segments, partitions, of_partition, survey)


_id_of = attrgetter("segment_id")
"""Two listings have the same segment if its id is. The rest may differ, or have no hash in a fetcher of users."""

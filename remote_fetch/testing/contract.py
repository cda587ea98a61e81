"""The contract of a fetcher as a suite of tests: inherit from it in a pytest module, and your fetcher is examined.

    class TestMine(FetcherContract, ListingContract):
        @pytest.fixture(autouse=True)
        def medium(self, tmp_path):
            self.directory = tmp_path

        def new_fetcher(self):
            return MyFetcher()

        def configs(self):
            return {"remote.storage.url": str(self.directory)}

        def put(self, name, data):
            ...  # write an object, by another way than the fetcher reads it

Rules of the file:

- The tests check the promises of the port `remote_fetch.fetch.spi`, one by one, and no implementation detail.
- The subclass writes the medium, never the fetcher.
- Promises that need a misbehaving medium have their own class, so that no test has to be skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

import pytest

from remote_fetch.errors import (
    ConfigError,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageThrottled,
    StorageTimeout,
    StorageUnavailable,
)
from remote_fetch.fetch.spi import (
    CredentialRefresher,
    PartitionLister,
    RemoteStorageFetcher,
    SegmentLister,
    SegmentSizer,
)
from remote_fetch.model import UNKNOWN_SIZE, IndexType, RemoteLogSegmentId, Uuid
from remote_fetch.testing import contract_parts as parts
from remote_fetch.testing.contract_parts import contract_segments
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import kafka_local_files

__all__ = [
    "DenialContract",
    "FetcherContract",
    "ListingContract",
    "StallContract",
    "StatusContract",
    "contract_segments",
]

_THREADS = 8

_BY_STATUS: Mapping[int, type[RemoteFetchError]] = {
    401: StorageDenied,
    403: StorageDenied,
    404: SegmentNotFound,
    412: SegmentNotFound,
    429: StorageThrottled,
    500: StorageUnavailable,
    503: StorageThrottled,
}


class _Base:
    """The methods that a subclass provides, and helpers of the tests."""

    def new_fetcher(self) -> RemoteStorageFetcher:
        """A new fetcher, not configured."""
        raise NotImplementedError

    def configs(self) -> Mapping[str, str]:
        """A configuration with which the fetcher reads the objects of `put`."""
        raise NotImplementedError

    def put(self, name: str, data: bytes) -> None:
        """Write one object, without the fetcher. Its name is relative to the configured URL."""
        raise NotImplementedError

    def put_segment(self, segment: BuiltSegment) -> None:
        """Write one segment as the storage plug-in does. By default in the layout `kafka_local`, with `put`."""
        for name, data in kafka_local_files(segment):
            self.put(name, data)

    @contextmanager
    def opened(self, configs: Mapping[str, str] | None = None) -> Iterator[RemoteStorageFetcher]:
        """A configured fetcher, closed at the end."""
        fetcher = self.new_fetcher()
        fetcher.configure(self.configs() if configs is None else configs)
        try:
            yield fetcher
        finally:
            fetcher.close()

    @pytest.fixture
    def segments(self) -> list[BuiltSegment]:
        """Segments of one partition. The store has them and similar ones, in each test the same."""
        for segment in parts.stored_segments():
            self.put_segment(segment)
        return contract_segments()


class FetcherContract(_Base):
    """The promises of every fetcher."""

    def test_it_has_the_methods_of_the_port(self) -> None:
        """The fetcher has the methods. It need not inherit from a class."""
        assert isinstance(self.new_fetcher(), RemoteStorageFetcher)

    def test_whole_segments(self, segments: list[BuiltSegment]) -> None:
        """An end of -1 is the end of the segment."""
        with self.opened() as fetcher:
            for segment in segments:
                assert bytes(fetcher.fetch_log_segment(segment.metadata, 0)) == segment.log
                assert bytes(fetcher.fetch_log_segment(segment.metadata, 0, -1)) == segment.log

    def test_ranges(self, segments: list[BuiltSegment]) -> None:
        """Exactly [start, end), shorter only at the end of the segment."""
        segment = segments[1]
        size = len(segment.log)
        with self.opened() as fetcher:
            for start in (0, 1, 61, 1000, size - 100, size - 1):
                for end in (start + 1, start + 61, start + 1000, size - 1, size, size + 1, start + 2**31, -1):
                    wanted = segment.log[start:] if end < 0 else segment.log[start:end]
                    found = memoryview(fetcher.fetch_log_segment(segment.metadata, start, end))
                    assert (found.format, found.itemsize, found.contiguous) == ("B", 1, True)
                    assert bytes(found) == wanted, f"bytes {start} to {end} of {size}"

    def test_nothing_is_past_the_end(self, segments: list[BuiltSegment]) -> None:
        """A start at or past the end gives an empty answer, not an error."""
        segment = segments[0]
        with self.opened() as fetcher:
            for start in (len(segment.log), len(segment.log) + 1, len(segment.log) + 10**6, 2**40):
                for end in (start + 1, start + 1000, -1):
                    assert bytes(fetcher.fetch_log_segment(segment.metadata, start, end)) == b"", (start, end)

    def test_an_empty_range_is_empty(self, segments: list[BuiltSegment]) -> None:
        """An end equal to the start gives an empty answer."""
        with self.opened() as fetcher:
            for at in (0, 100, 10**7):
                assert bytes(fetcher.fetch_log_segment(segments[0].metadata, at, at)) == b""

    def test_indexes(self, segments: list[BuiltSegment]) -> None:
        """Each index as it was written, and None for an index that does not exist."""
        with self.opened() as fetcher:
            for segment in segments:
                for index_type in IndexType:
                    found = fetcher.fetch_index(segment.metadata, index_type)
                    assert (None if found is None else bytes(found)) == segment.index(index_type)
        assert {segment.transaction_index is None for segment in segments} == {True, False}

    def test_similar_segments(self, segments: list[BuiltSegment]) -> None:
        """Segments of other topics and partitions have their own bytes, also if they start with the same offset."""
        with self.opened() as fetcher:
            for segment in parts.stored_segments():
                assert bytes(fetcher.fetch_log_segment(segment.metadata, 0)) == segment.log
                for index_type in IndexType:
                    found = fetcher.fetch_index(segment.metadata, index_type)
                    assert (None if found is None else bytes(found)) == segment.index(index_type)

    def test_an_index_that_is_written_again(self, segments: list[BuiltSegment]) -> None:
        """It is no index that does not exist. A medium that takes no name twice is not examined."""
        segment = segments[0]
        with self.opened() as fetcher:
            for _ in range(3):
                for index_type in IndexType:
                    with suppress(SegmentNotFound):
                        found = fetcher.fetch_index(segment.metadata, index_type)
                        assert found is not None, f"{index_type} was there before, and was written again"
                        assert bytes(found) == segment.index(index_type)
                try:
                    self.put_segment(segment)
                except Exception:
                    return

    def test_a_segment_that_is_not_there(self, segments: list[BuiltSegment]) -> None:
        """SegmentNotFound names the object. The indexes are missing too."""
        known = segments[0].metadata
        other = RemoteLogSegmentId(known.topic_id_partition, Uuid(b"not in the store"))
        gone = replace(known, segment_id=other)
        with self.opened() as fetcher:
            for start, end in ((0, 10), (0, -1), (5, 10**6)):
                with pytest.raises(SegmentNotFound) as caught:
                    fetcher.fetch_log_segment(gone, start, end)
                parts.examine(caught.value, self.configs())
                assert caught.value.object_name
            for index_type in IndexType:
                try:
                    assert fetcher.fetch_index(gone, index_type) is None
                except SegmentNotFound as error:
                    parts.examine(error, self.configs())

    def test_the_size_of_a_segment(self, segments: list[BuiltSegment]) -> None:
        """A SegmentSizer gives the true size, or None, for metadata that has no size."""
        with self.opened() as fetcher:
            if not isinstance(fetcher, SegmentSizer):
                return
            for segment in segments:
                unknown = replace(segment.metadata, segment_size_in_bytes=UNKNOWN_SIZE)
                assert fetcher.size(unknown) in (len(segment.log), None)

    def test_several_threads_at_once(self, segments: list[BuiltSegment]) -> None:
        """Calls of several threads do not disturb each other."""
        wrong: list[object] = []
        together = threading.Barrier(_THREADS)
        with self.opened() as fetcher, parts.often_switching():

            def read(number: int) -> None:
                try:
                    together.wait(parts.WAIT_S)
                    for turn in parts.turns():
                        segment = segments[(number + turn) % len(segments)]
                        start = 37 * number + turn % 100
                        found = fetcher.fetch_log_segment(segment.metadata, start, start + 500)
                        if bytes(found) != segment.log[start : start + 500]:
                            wrong.append((number, turn))
                except Exception as error:
                    wrong.append(error)

            threads = [threading.Thread(target=read, args=(number,)) for number in range(_THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(parts.WAIT_S)
            assert not any(thread.is_alive() for thread in threads)
        assert wrong[:3] == []

    def test_two_fetchers_do_not_share_a_fate(self, segments: list[BuiltSegment]) -> None:
        """After one fetcher is closed, another fetcher of the same configuration still works."""
        with self.opened() as kept:
            with self.opened() as closed:
                closed.fetch_log_segment(segments[0].metadata, 0, 10)
            assert bytes(kept.fetch_log_segment(segments[0].metadata, 0, 10)) == segments[0].log[:10]

    def test_closed(self, segments: list[BuiltSegment]) -> None:
        """Later calls raise a RemoteFetchError. A second `close` does no harm."""
        fetcher = self.new_fetcher()
        fetcher.configure(self.configs())
        fetcher.fetch_log_segment(segments[0].metadata, 0, 10)
        fetcher.close()
        fetcher.close()
        with pytest.raises(RemoteFetchError):
            fetcher.fetch_log_segment(segments[0].metadata, 0, 10)
        with pytest.raises(RemoteFetchError):
            fetcher.fetch_index(segments[0].metadata, IndexType.OFFSET)

    def test_a_configuration_that_says_nothing(self) -> None:
        """Raises ConfigError."""
        with pytest.raises(ConfigError) as caught:
            self.new_fetcher().configure({})
        parts.examine(caught.value, {})

    def test_new_credentials_change_no_answer(self, segments: list[BuiltSegment]) -> None:
        """A fetcher with `refresh_credentials` gives the same answers after it."""
        segment = segments[0]
        with self.opened() as fetcher:
            if isinstance(fetcher, CredentialRefresher):
                fetcher.refresh_credentials()
            assert bytes(fetcher.fetch_log_segment(segment.metadata, 3, 9)) == segment.log[3:9]


class ListingContract(_Base):
    """For a fetcher that is also a SegmentLister."""

    def test_every_segment_is_listed_once(self, segments: list[BuiltSegment]) -> None:
        """Each segment can be read, and has its offsets and size as far as the lister knows them."""
        known = {segment.metadata.segment_id: segment for segment in parts.stored_segments()}
        with self.opened() as fetcher:
            assert isinstance(fetcher, SegmentLister)
            listed = list(fetcher.list_segments())
            assert sorted(metadata.segment_id for metadata in listed) == sorted(known)
            for metadata in listed:
                segment = known[metadata.segment_id]
                assert metadata.start_offset == segment.metadata.start_offset
                assert metadata.end_offset in (-1, segment.metadata.end_offset)
                assert not metadata.size_known or metadata.segment_size_in_bytes == len(segment.log)
                assert not metadata.txn_index_empty or segment.transaction_index is None
                assert bytes(fetcher.fetch_log_segment(metadata, 0, 100)) == segment.log[:100]

    def test_one_topic_alone(self, segments: list[BuiltSegment]) -> None:
        """A topic is selected by its whole name, not by a prefix, and the name may have a dash and a number."""
        ids = sorted(segment.metadata.segment_id for segment in parts.stored_segments())
        with self.opened() as fetcher:
            assert isinstance(fetcher, SegmentLister)
            for topic in {each.topic_id_partition.topic for each in ids}:
                wanted = [each for each in ids if each.topic_id_partition.topic == topic]
                assert sorted(metadata.segment_id for metadata in fetcher.list_segments(topic)) == wanted
                assert list(fetcher.list_segments(topic[:-1])) == []
                assert list(fetcher.list_segments(f"{topic}-0")) == []

    def test_one_partition_alone(self, segments: list[BuiltSegment]) -> None:
        """A PartitionLister finds every partition, and lists the segments of each."""
        ids = sorted(segment.metadata.segment_id for segment in parts.stored_segments())
        partitions = {each.topic_id_partition for each in ids}
        with self.opened() as fetcher:
            if not isinstance(fetcher, PartitionLister) or (found := fetcher.list_partitions()) is None:
                return
            assert partitions <= set(found)
            for partition in partitions:
                wanted = [each for each in ids if each.topic_id_partition == partition]
                assert sorted(metadata.segment_id for metadata in fetcher.list_partition(partition)) == wanted


class DenialContract(_Base):
    """For a medium that can refuse: `denied` gives a configuration that the medium refuses."""

    def denied(self) -> AbstractContextManager[Mapping[str, str]]:
        """A configuration with which the medium refuses every object, also a missing one."""
        raise NotImplementedError

    def test_what_is_refused_is_never_absent(self, segments: list[BuiltSegment]) -> None:
        """StorageDenied, also for an index that does not exist. None would mean that no transaction was aborted."""
        with self.denied() as configs:
            try:
                with self.opened(configs) as fetcher:
                    for call in parts.calls(fetcher, segments[-1]):
                        with pytest.raises(StorageDenied) as caught:
                            call()
                        parts.examine(caught.value, configs)
            except StorageDenied as error:  # `configure` may raise it already
                parts.examine(error, configs)


class StatusContract(_Base):
    """For a store over HTTP: `answering` gives the configuration of a store that answers with one status."""

    def answering(self, status: int) -> AbstractContextManager[Mapping[str, str]]:
        """A configuration with which every request for an object is answered with that HTTP status."""
        raise NotImplementedError

    @pytest.mark.parametrize("status", sorted(_BY_STATUS))
    def test_each_status_is_its_error(self, segments: list[BuiltSegment], status: int) -> None:
        """All stores raise the same errors. Only 404 may mean that an index does not exist."""
        error = _BY_STATUS[status]
        with self.answering(status) as configs, self.opened(configs) as fetcher:
            with pytest.raises(error) as caught:
                fetcher.fetch_log_segment(segments[0].metadata, 0, 100)
            assert type(caught.value) is error
            parts.examine(caught.value, configs)
            if status == 404:
                return
            for index_type in IndexType:
                with pytest.raises(error):
                    fetcher.fetch_index(segments[0].metadata, index_type)


class StallContract(_Base):
    """For a fetcher over a network that obeys `fetch.remote.connect.timeout.ms` and `fetch.remote.read.timeout.ms`."""

    def stalled_connect(self) -> AbstractContextManager[Mapping[str, str]]:
        """A configuration whose store neither accepts nor refuses a connection."""
        raise NotImplementedError

    def stalled_body(self) -> AbstractContextManager[Mapping[str, str]]:
        """A configuration whose store sends half of each body, then stalls. A short body may come whole."""
        raise NotImplementedError

    def test_no_connection(self, segments: list[BuiltSegment]) -> None:
        """The call ends with a timeout, StorageConnectTimeout if the SDK can tell."""
        with self.stalled_connect() as configs:
            outcome = parts.outcome_of(self.opened, configs, lambda fetcher: parts.fetch_log(fetcher, segments[0]))
        assert isinstance(outcome, StorageTimeout), outcome

    def test_half_a_body(self, segments: list[BuiltSegment]) -> None:
        """The call ends with a timeout, and does not return half of the bytes."""
        with self.stalled_body() as configs:
            outcome = parts.outcome_of(self.opened, configs, lambda fetcher: parts.fetch_log(fetcher, segments[0]))
        assert isinstance(outcome, StorageTimeout), outcome

    def test_half_an_index(self, segments: list[BuiltSegment]) -> None:
        """As half a body: half of an index may look like a whole one."""
        with self.stalled_body() as configs:
            outcome = parts.outcome_of(
                self.opened, configs, lambda fetcher: fetcher.fetch_index(segments[0].metadata, IndexType.OFFSET)
            )
        assert isinstance(outcome, StorageTimeout) or outcome == segments[0].index(IndexType.OFFSET), outcome

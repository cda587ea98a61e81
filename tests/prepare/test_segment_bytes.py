"""The bytes of whole segments."""

from __future__ import annotations

import threading

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import StorageTimeout
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.model import RemoteLogSegmentMetadata
from remote_fetch.prepare.segment_bytes import segment_bytes
from remote_fetch.session.session import Session
from tests.eventually import eventually
from tests.scan.bucket import Bucket, plain_log


def test_a_range_that_has_not_begun_in_time_is_not_read_later() -> None:
    class Hanging(Bucket):
        def fetch_log_segment(
            self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int = -1
        ) -> memoryview:
            asked.append(start_position)
            release.wait(60)
            return super().fetch_log_segment(metadata, start_position, end_position)

    asked: list[int] = []
    release = threading.Event()
    fetcher = Hanging(plain_log().segments())
    # One thread reads one range at a time.
    sizes = {"fetch.remote.range.bytes": 65536, "fetch.remote.max.bytes": 65536}
    with Session(Config.parse({"fetch.remote.read.timeout.ms": 50, **sizes}), fetcher) as session:
        reader = session.storage.reader
        next(reader.read_ahead([RangeRequest(fetcher.at(0), 1, 2)]))
        assert eventually(lambda: bool(asked))
        with pytest.raises(StorageTimeout):
            next(segment_bytes(session.storage, fetcher.at(0), ahead_bytes=1))
        release.set()
        assert eventually(lambda: not reader.is_asking)
    assert asked == [1]

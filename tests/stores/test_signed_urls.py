"""Signed URLs in the segments' custom metadata, on a server that checks signatures and their age.

Rules of the file:

- The layout is `url`, over the fetcher `http`.
- boto3 signs the URLs.
- The read bytes have to be those of the object.
"""

from __future__ import annotations

import traceback
from dataclasses import replace

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import StorageDenied
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentSizer
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from tests.stores.s3_server import BUCKET, S3Server
from tests.stores.servers import PATIENCE, StoreServer


def signed(server: S3Server, segment: RemoteLogSegmentMetadata, seconds: int) -> RemoteLogSegmentMetadata:
    """The segment with the signed URL of its log as custom metadata."""
    place = segment.topic_id_partition
    folder = f"kafka-tiered-storage/{place.topic}-{place.partition}-{place.topic_id}"
    name = f"{folder}/{segment.start_offset:020d}-{segment.segment_id.id}.log"
    parameters = {"Bucket": BUCKET, "Key": name}
    url = server.client().generate_presigned_url("get_object", Params=parameters, ExpiresIn=seconds)
    return replace(segment, custom_metadata=url.encode())


@pytest.fixture
def s3(s3: StoreServer) -> S3Server:
    """The session's server, where it checks signatures."""
    if not isinstance(s3, S3Server):
        pytest.skip("moto checks no signatures")
    return s3


@pytest.fixture
def by_url(s3: S3Server) -> RemoteStorageFetcher:
    """A fetcher without credentials: the URLs have them."""
    config = {"remote.storage.url": f"{s3.endpoint}/{BUCKET}", "remote.storage.layout": "url", **PATIENCE}
    return load_fetcher(Config.parse(config))


@pytest.fixture
def segment(s3: S3Server) -> RemoteLogSegmentMetadata:
    """A segment on the server."""
    fetcher = load_fetcher(Config.parse(s3.configs()))
    return max(fetcher.list_segments(), key=lambda one: one.segment_size_in_bytes)  # type: ignore[attr-defined,no-any-return]


def test_a_signed_url_is_read_as_it_is(
    s3: S3Server, by_url: RemoteStorageFetcher, segment: RemoteLogSegmentMetadata
) -> None:
    whole = bytes(load_fetcher(Config.parse(s3.configs())).fetch_log_segment(segment, 0))
    located = signed(s3, segment, 60)
    assert bytes(by_url.fetch_log_segment(located, 0)) == whole
    assert bytes(by_url.fetch_log_segment(located, 10, 500)) == whole[10:500]
    assert isinstance(by_url, SegmentSizer)
    assert by_url.size(located) == len(whole), "by a GET: HEAD would need a signature of its own"
    assert by_url.fetch_index(located, IndexType.OFFSET) is None


def test_one_that_is_no_longer_valid_shows_no_signature(
    s3: S3Server, by_url: RemoteStorageFetcher, segment: RemoteLogSegmentMetadata
) -> None:
    located = signed(s3, segment, 60)
    assert located.custom_metadata is not None
    broken = replace(located, custom_metadata=located.custom_metadata.replace(b"X-Amz-Expires=60", b"X-Amz-Expires=61"))
    with pytest.raises(StorageDenied) as caught:
        by_url.fetch_log_segment(broken, 0, 10)
    told = "".join(traceback.format_exception(caught.value))
    assert "X-Amz" not in told
    assert (caught.value.object_name or "").endswith(".log")

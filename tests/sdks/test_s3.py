"""Clients of S3 and redirects: what the host sees to which an endpoint redirects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore import UNSIGNED
from fsspec.implementations.memory import MemoryFileSystem

from fetchers.s3 import S3Fetcher
from remote_fetch.errors import StorageDenied
from remote_fetch.session.filesystems import direct, open_filesystem
from remote_fetch.tables.iceberg import IcebergTarget
from tests.redirecting import Redirecting, check_refused, redirecting

OPTIONS = "remote.storage.options."


@pytest.fixture(params=[301, 302, 303, 307, 308])
def server(request: pytest.FixtureRequest) -> Iterator[Redirecting]:
    with redirecting(request.param) as opened:
        yield opened


def test_no_redirect_is_followed(server: Redirecting) -> None:
    """It would take the token of the session to another host, and bring bytes from there."""
    fetcher = S3Fetcher()
    fetcher.configure(
        {
            "remote.storage.url": "s3://bucket/prefix",
            OPTIONS + "endpoint_url": f"http://127.0.0.1:{server.server_port}",
            OPTIONS + "key": "AKID",
            OPTIONS + "secret": "secret",
            OPTIONS + "token": "token",
            OPTIONS + "client_kwargs": json.dumps({"region_name": "eu-west-1"}),
        }
    )
    with pytest.raises(StorageDenied, match="somewhere else"):
        fetcher.opened_store().get("a.log", 0, 4)
    fetcher.close()
    assert server.asked == []
    assert server.redirected == ["GET", "HEAD"][: 2 if server.status in (301, 302, 307) else 1]  # HEAD for the region


def test_nothing_is_written_to_the_host_of_a_redirect(server: Redirecting) -> None:
    """It would have the records of an export, and the export would be taken for done. Also in another process."""
    filesystem, path = open_filesystem(
        "s3://bucket/prefix",
        {
            "endpoint_url": f"http://127.0.0.1:{server.server_port}",
            "key": "AKID",
            "secret": "secret",
            "token": "token",
            "client_kwargs": {"region_name": "eu-west-1"},
            "config_kwargs": {"retries": {"mode": "standard", "total_max_attempts": 1}},
        },
        key="to",
    )
    check_refused(filesystem, path)
    assert server.asked == []
    assert server.redirected == ["PUT", "HEAD"][: 2 if server.status in (301, 302, 307) else 1]  # HEAD for the region


def test_nothing_of_an_iceberg_table_is_written_to_the_host_of_a_redirect(tmp_path: Path) -> None:
    """pyiceberg opens s3fs as it is. The data files are not written by pyiceberg."""
    table = IcebergTarget("lake.orders", {"warehouse": str(tmp_path)})
    with redirecting(307) as server:
        properties = {
            "s3.endpoint": f"http://127.0.0.1:{server.server_port}",
            "s3.access-key-id": "AKID",
            "s3.secret-access-key": "secret",
            "s3.session-token": "token",
            "s3.region": "eu-west-1",
        }
        io = SimpleNamespace(properties=properties)
        table._table = SimpleNamespace(location=lambda: "s3://bucket/orders", io=io)
        filesystem = table.folder()._fs
        with pytest.raises(StorageDenied, match="somewhere else"):
            filesystem.pipe_file("bucket/orders/a.parquet", b"rows")
        properties |= {"s3.signer": "S3V4RestSigner", "uri": "http://127.0.0.1:1"}
        assert table.folder()._fs.config_kwargs == {"signature_version": UNSIGNED}, "the signer stays"
    table.close()
    assert server.asked == []
    assert server.redirected == ["PUT", "HEAD"]


def test_another_filesystem_is_none_that_redirects() -> None:
    filesystem = MemoryFileSystem()
    assert direct(filesystem) is filesystem

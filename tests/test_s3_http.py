"""Clients of S3 and redirects: what the host sees to which an endpoint redirects."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fetchers.s3 import S3Fetcher
from remote_fetch.errors import StorageDenied
from remote_fetch.session.filesystems import open_filesystem
from remote_fetch.tables.target_filesystem import of_target

OPTIONS = "remote.storage.options."


class Redirecting(ThreadingHTTPServer):
    """Redirects each request to the same server under another name, and notes what that name is asked."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.asked: list[dict[str, str]] = []
        self.redirected: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Redirecting
    protocol_version = "HTTP/1.1"  # a PUT waits for the interim answer of this version

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers["Host"].startswith("localhost"):
            self.server.asked.append(dict(self.headers))
            self.send_response(206)
            self.send_header("Content-Range", "bytes 0-3/9")
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"evil")
            return
        self.server.redirected.append(self.command)
        self.send_response(self.server.status)
        self.send_header("Location", f"http://localhost:{self.server.server_port}{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_PUT = do_GET

    def log_message(self, *args: object) -> None: ...


@pytest.fixture(params=[301, 302, 303, 307, 308])
def server(request: pytest.FixtureRequest) -> Iterator[Redirecting]:
    with Redirecting(request.param) as opened:
        thread = threading.Thread(target=opened.serve_forever, daemon=True)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join(5)


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
    target = pickle.loads(pickle.dumps(of_target(filesystem)))
    with pytest.raises(StorageDenied, match="somewhere else"):
        target.pipe_file(f"{path}/a.parquet", b"rows")
    assert server.asked == []
    assert server.redirected == ["PUT", "HEAD"][: 2 if server.status in (301, 302, 307) else 1]  # HEAD for the region


def test_another_library_for_the_scheme_keeps_its_own_options() -> None:
    own = fsspec.get_filesystem_class("s3")
    fsspec.register_implementation("s3", MemoryFileSystem, clobber=True)
    try:
        filesystem, _ = open_filesystem("s3://bucket/prefix", {"theirs": 1}, key="to")
    finally:
        fsspec.register_implementation("s3", own, clobber=True)
    assert filesystem.storage_options == {"use_listings_cache": False, "theirs": 1}

"""A store whose endpoint redirects each request to another name of its host."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from remote_fetch.errors import StorageDenied
from remote_fetch.tables.target_filesystem import of_target
from tests.answering import Quiet, serving


class Redirecting(ThreadingHTTPServer):
    """Redirects each request to the same server under another name, and notes what that name is asked."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.asked: list[dict[str, str]] = []
        self.redirected: list[str] = []


class Handler(Quiet):
    server: Redirecting
    protocol_version = "HTTP/1.1"  # a PUT waits for the interim answer of this version

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers["Host"].startswith("localhost"):
            self.server.asked.append(dict(self.headers))
            self.answer(206, b"evil", Content_Range="bytes 0-3/9")
            return
        self.server.redirected.append(self.command)
        self.answer(self.server.status, Location=f"http://localhost:{self.server.server_port}{self.path}")

    do_HEAD = do_POST = do_PUT = do_GET


@contextmanager
def redirecting(status: int) -> Iterator[Redirecting]:
    """A server that answers with a redirect of this status."""
    opened = Redirecting(status)
    with serving(opened):
        yield opened


def check_refused(filesystem: Any, path: str) -> None:
    """A target over the filesystem writes nothing to the host of a redirect, in another process neither."""
    target = pickle.loads(pickle.dumps(of_target(filesystem)))
    with pytest.raises(StorageDenied, match="somewhere else"):
        target.pipe_file(f"{path}/a.parquet", b"rows")

"""A store whose endpoint redirects each request to another name of its host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

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

"""A store whose endpoint redirects each request to another name of its host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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

    do_HEAD = do_POST = do_PUT = do_GET

    def log_message(self, *args: object) -> None: ...


@contextmanager
def redirecting(status: int) -> Iterator[Redirecting]:
    """A server that answers with a redirect of this status."""
    with Redirecting(status) as opened:
        thread = threading.Thread(target=opened.serve_forever, daemon=True)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join(5)

"""A server that answers each request with one of S3's errors.

Rules of the file:

- Standard library only, and no code of the package under test.
- The answer to HEAD has no body, as HTTP demands. Then S3's code is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

__all__ = ["refusing"]


@contextmanager
def refusing(status: int, code: str, *, region: str | None = None, is_deleted: bool = False) -> Iterator[str]:
    """The URL of such a server.

    `region` is what it says about the bucket's region, None: nothing. `is_deleted`: it has a marker of a deletion.
    """
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>No.</Message></Error>".encode()

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if region is not None:
                self.send_header("x-amz-bucket-region", region)
            if is_deleted:
                self.send_header("x-amz-delete-marker", "true")
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

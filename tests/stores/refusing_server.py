"""A server that answers each request with one of S3's errors.

Rules of the file:

- Standard library only, and no code of the package under test.
- The answer to HEAD has no body, as HTTP demands. Then S3's code is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from tests.answering import Quiet, serving

__all__ = ["refusing"]


@contextmanager
def refusing(status: int, code: str, *, region: str | None = None, is_deleted: bool = False) -> Iterator[str]:
    """The URL of such a server.

    `region` is what it says about the bucket's region, None: nothing. `is_deleted`: it has a marker of a deletion.
    """
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>No.</Message></Error>".encode()
    headers = {} if region is None else {"x-amz-bucket-region": region}
    if is_deleted:
        headers["x-amz-delete-marker"] = "true"

    class Refusal(Quiet):
        def do_GET(self) -> None:
            self.answer(status, body, **headers)

        do_HEAD = do_GET

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Refusal)) as url:
        yield url

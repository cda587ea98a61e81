"""Sessions of gcsfs and redirects: what the host sees to which an endpoint redirects."""

from __future__ import annotations

import asyncio
from http.server import ThreadingHTTPServer
from typing import Any

import aiohttp
import pytest
from gcsfs.core import GCSFileSystem

from remote_fetch.sdks.gcs import DirectSessions
from remote_fetch.session.filesystems import direct, open_filesystem
from tests.answering import Quiet, serving
from tests.redirecting import check_refused, redirecting


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nothing_is_written_to_the_host_of_a_redirect(status: int) -> None:
    """It would have the records of an export, and the export would be taken for done. Also in another process."""
    with redirecting(status) as server:
        options = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "token": "anon"}
        filesystem, path = open_filesystem("gs://bucket/prefix", options, key="to")
        theirs = direct(GCSFileSystem(**options))  # as pyiceberg opens it
        for opened in (filesystem, theirs):
            check_refused(opened, path)
    assert server.asked == []
    assert server.redirected == ["POST"] * 2


@pytest.mark.parametrize("end", ["/", "//"])
def test_an_endpoint_of_a_target_may_end_with_a_slash(end: str) -> None:
    """gcsfs asks for `//upload/storage/v1/`, which no server knows."""
    options = {"endpoint_url": f"http://127.0.0.1:1{end}", "token": "anon"}
    for opened in (open_filesystem("gs://bucket/a", options, key="to")[0], direct(GCSFileSystem(**options))):
        assert opened.base == "http://127.0.0.1:1/storage/v1/"


def test_a_filesystem_is_opened_once_and_has_the_traces_of_its_options() -> None:
    traced: list[str] = []

    async def note(session: Any, context: Any, end: Any) -> None:
        traced.append(end.method)

    theirs = aiohttp.TraceConfig()
    theirs.on_request_start.append(note)
    options = {"token": "anon", "session_kwargs": {"trace_configs": [theirs]}}
    filesystem, _ = open_filesystem("gs://bucket/a", options, key="to")
    assert open_filesystem("gs://bucket/b", options, key="to")[0] is filesystem
    with redirecting(307) as server:
        options["endpoint_url"] = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(Exception, match="HTTP status 307"):
            open_filesystem("gs://bucket/a", options, key="to")[0].pipe_file("bucket/a", b"rows")
    assert traced == ["POST"]


class Unfinished(Quiet):
    def do_GET(self) -> None:
        self.send_response(308)
        self.end_headers()


def test_a_308_without_a_location_is_an_answer() -> None:
    """Google's to a part of an upload: more is to come."""

    async def asked(url: str) -> int:
        async with aiohttp.ClientSession(trace_configs=[DirectSessions()]) as session, session.get(url) as answer:
            return answer.status

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Unfinished)) as url:
        assert asyncio.run(asked(url)) == 308

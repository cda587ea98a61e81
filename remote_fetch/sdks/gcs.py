"""The HTTP sessions of gcsfs, which follow no redirect, and its options.

Rules of the file:

- aiohttp follows a redirect to any host. The body of an upload would go to that host, and its 200 would be taken for
  the store's. After 301, 302 and 303 it asks by GET, so that the 200 is no answer to the upload at all.
- Google answers 308 without a Location to a part of an upload: more is to come. That is no redirect.
- gcsfs retries aiohttp's errors for half a minute. The error of a redirect is none of them.
- This module loads aiohttp. Callers import it when a bucket is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import TraceConfig

from remote_fetch.failures.store_errors import RefusedError

__all__ = ["DirectSessions", "without_slash"]


class DirectSessions(TraceConfig):
    """One of the `trace_configs` of a session. Raises RefusedError instead of a request to another place. Pickles."""

    def __init__(self) -> None:
        super().__init__()
        self.on_request_redirect.append(_refuse)

    def __repr__(self) -> str:
        return "DirectSessions()"  # fsspec knows by the text of the options that it has such a filesystem already

    def __reduce__(self) -> tuple[Any, ...]:
        return DirectSessions, ()


async def _refuse(session: Any, context: Any, redirect: Any) -> None:
    answer = redirect.response
    if "Location" in answer.headers or "URI" in answer.headers:  # aiohttp takes either
        answer.close()
        raise RefusedError(answer.status)


def without_slash(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options of gcsfs. It puts a slash behind `endpoint_url`, and no server knows the path `//storage`."""
    endpoint = options.get("endpoint_url")
    return {**options, "endpoint_url": str(endpoint).rstrip("/")} if endpoint else options

"""The HTTP session of clients of S3: it follows no redirect.

Rules of the file:

- aiohttp follows a redirect to any host, and takes off only Authorization. A token of temporary credentials, a key of
  the customer (SSE-C), or the body of a PUT would go to that host, and its answer would be taken for the store's.
- botocore follows no Location either. It asks for the region of the bucket, and signs another request for its host.
- A redirect of that question which names no region ends it: aiobotocore would ask again, a hundred times.
- The extra `s3` wants aiobotocore 2.12.2: an earlier release cannot be given a session.
- This module loads the SDK. Callers import it when a bucket of S3 is opened.
"""

from __future__ import annotations

from typing import Any

from aiobotocore.httpsession import AIOHTTPSession

from remote_fetch.failures.store_errors import RefusedError

__all__ = ["DirectSession"]

_REGION = "x-amz-bucket-region"
_ANY: Any = AIOHTTPSession


class _WithoutRedirects:
    """A session of aiohttp, for requests."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def request(self, method: str, **arguments: Any) -> Any:
        """A request whose answer may be a redirect."""
        return self._session.request(method, **arguments, allow_redirects=False)


class DirectSession(_ANY):  # type: ignore[misc]
    """The `http_session_cls` of a client's configuration (`AioConfig`). Pickles by its name in the module."""

    async def _get_session(self, proxy_url: Any) -> Any:
        return _WithoutRedirects(await super()._get_session(proxy_url))

    async def send(self, request: Any) -> Any:
        """As `AIOHTTPSession.send`. Raises RefusedError for a redirect that names no region to HEAD."""
        answer = await super().send(request)
        if request.method == "HEAD" and 300 <= answer.status_code < 400 and _REGION not in answer.headers:
            raise RefusedError(answer.status_code)
        return answer

"""The HTTP session of the S3 client: it follows no redirect.

Rules of the file:

- aiohttp follows a redirect to any host, and takes off only Authorization. A token of temporary credentials, or
  a key of the customer (SSE-C), would go to that host, and its bytes would be taken for the store's.
- botocore follows no Location either. It asks for the region of the bucket, and signs another request for its host.
- A redirect of that question which names no region ends it: aiobotocore would ask again, a hundred times.
- The extra `s3` wants aiobotocore 2.12.2: an earlier release cannot be given a session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fetchers._cloud import RefusedError

__all__ = ["client_options"]

_REGION = "x-amz-bucket-region"


class _WithoutRedirects:
    """A session of aiohttp, for requests."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def request(self, method: str, **arguments: Any) -> Any:
        """A request whose answer may be a redirect."""
        return self._session.request(method, **arguments, allow_redirects=False)


@cache
def client_options() -> Mapping[str, Any]:
    """The arguments of the client's configuration (`AioConfig`) by which no redirect is followed."""
    from aiobotocore.httpsession import AIOHTTPSession  # noqa: PLC0415 - the extra brings it

    followed: Any = AIOHTTPSession

    class DirectSession(followed):  # type: ignore[misc]
        async def _get_session(self, proxy_url: Any) -> Any:
            return _WithoutRedirects(await super()._get_session(proxy_url))

        async def send(self, request: Any) -> Any:
            answer = await super().send(request)
            if request.method == "HEAD" and 300 <= answer.status_code < 400 and _REGION not in answer.headers:
                raise RefusedError(answer.status_code)
            return answer

    return {"http_session_cls": DirectSession}

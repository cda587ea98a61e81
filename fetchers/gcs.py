"""Segments in Google Cloud Storage, by way of gcsfs.

Rules of the file: credentials are found by gcsfs (options, application default credentials, workload identity, none)
and renewed five minutes before they expire, in the thread that reads and not in the loop that serves all of them;
gcsfs's plain filesystem is taken, for the other one first asks by gRPC what kind of bucket it has.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from fetchers._cloud import BODY_BYTES, CloudFetcher, CloudStore, Page, RefusedError, receive, size_of_range
from fetchers._options import OPTIONS, Timeouts, with_defaults
from fetchers._ranges import range_of
from remote_fetch.errors import ConfigError
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import Buffer

__all__ = ["GcsFetcher"]

_ERROR_BYTES = 4096
"""As much of the text of a refusal as is looked at."""


class _GcsStore(CloudStore):
    def read(self, path: str, start: int, end: int | None) -> Buffer:
        self._filesystem.credentials.maybe_refresh()
        return super().read(path, start, end)

    async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
        filesystem, byte_range = self._filesystem, range_of(start, end)
        await filesystem._set_session()
        asked = filesystem.session.get(
            filesystem.url(f"{bucket}/{key}"),
            params=filesystem._get_params({}),
            headers=filesystem._get_headers({} if byte_range is None else {"Range": byte_range}),
            timeout=filesystem.requests_timeout,
            allow_redirects=False,
        )
        async with asked as answer:
            await _refused(answer)
            told = answer.headers.get("X-Goog-Generation") or answer.headers.get("ETag")
            self.identities.check(f"{bucket}/{key}", told)
            size_bytes = size_of_range(start, end, answer.headers.get("Content-Range"), answer.content_length)
            return await receive(answer.content.iter_chunked(BODY_BYTES), size_bytes)

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        filesystem = self._filesystem
        await filesystem._set_session()
        asked = filesystem.session.get(
            filesystem._format_path("b/{}/o", (bucket,)),
            params=filesystem._get_params({"prefix": prefix, "delimiter": "/", "pageToken": page}),
            headers=filesystem._get_headers({}),
            timeout=filesystem.requests_timeout,
            allow_redirects=False,
        )
        async with asked as answer:
            await _refused(answer)
            found = await answer.json(content_type=None)
        return Page(
            tuple(found.get("prefixes", ())),
            tuple(ObjectInfo(one["name"], int(one["size"])) for one in found.get("items", ())),
            found.get("nextPageToken"),
        )

    async def disconnect(self) -> None:
        if self._filesystem._session is not None:
            await self._filesystem._session.close()


async def _refused(answer: Any) -> None:
    """Raise what is no answer. The text of a 404 tells a missing bucket from a missing object."""
    if answer.status >= 300:
        text = await answer.content.read(_ERROR_BYTES)
        raise RefusedError(answer.status, "NoSuchBucket" if b"bucket does not exist" in text else None)


def _is_file_name(token: str) -> bool:
    return token.startswith(("/", ".", "~")) or token.endswith(".json")


class GcsFetcher(CloudFetcher):
    """The fetcher `gcs`: `remote.storage.url` is `gs://bucket/prefix`.

    Options are those of `gcsfs.GCSFileSystem`: `token` (a service account's file or JSON, `google_default`, `cloud`,
    `anon`), `project`, `endpoint_url`, `requester_pays`, and the JSON object `session_kwargs` (aiohttp's: `trust_env`
    for proxies of the environment).
    """

    protocol = "gs"
    extra = "gcs"
    store_type = _GcsStore

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """As `ComposedFetcher.options`."""
        import aiohttp  # noqa: PLC0415 - the extra brings it

        token = given.get("token")
        if isinstance(token, str) and _is_file_name(token) and not os.path.exists(token):
            # gcsfs would take it for a token, and ask Google what it is worth.
            raise ConfigError("the token is the name of a file that is not there", key=OPTIONS + "token")
        limits = aiohttp.ClientTimeout(total=timeouts.read_s, sock_connect=timeouts.connect_s)
        return with_defaults(given, {"access": "read_only", "requests_timeout": limits, "session_kwargs": {}})

    def _filesystem_class(self) -> Any:
        super()._filesystem_class()  # raises MissingExtra
        return importlib.import_module("gcsfs.core").GCSFileSystem

"""Segments in Amazon S3 and stores that speak its protocol, by way of s3fs.

Rules of the file: credentials are found by botocore's own chain (options, environment, profile, instance or workload
identity), which also renews them before they expire; what is retried is decided above, so botocore and s3fs try once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fsspec.asyn import sync

from fetchers._cloud import BODY_BYTES, CloudFetcher, CloudStore, Page, receive, size_of_range
from fetchers._options import Timeouts, with_defaults
from fetchers._ranges import range_of
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import Buffer

__all__ = ["S3Fetcher"]

_CONNECTIONS = 64
"""More than the threads of one reader, so that none of them waits for another; botocore's default is 10."""
_OPEN_TIMEOUT_S = 30


class _S3Store(CloudStore):
    async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
        byte_range = range_of(start, end)
        asked = {} if byte_range is None else {"Range": byte_range}
        answer = await self._filesystem._call_s3("get_object", Bucket=bucket, Key=key, **asked)
        body = answer["Body"]
        try:
            told = tuple(str(answer.get(name, "")) for name in ("VersionId", "ETag", "LastModified"))
            self.identities.check(f"{bucket}/{key}", told if any(told) else None)
            size_bytes = size_of_range(start, end, answer.get("ContentRange"), answer.get("ContentLength"))
            return await receive(body.iter_chunks(BODY_BYTES), size_bytes)
        finally:
            body.close()

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        asked = {} if page is None else {"ContinuationToken": page}
        answer = await self._filesystem._call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", **asked
        )
        return Page(
            tuple(folder["Prefix"] for folder in answer.get("CommonPrefixes", ())),
            tuple(ObjectInfo(found["Key"], found["Size"]) for found in answer.get("Contents", ())),
            answer.get("NextContinuationToken") if answer.get("IsTruncated") else None,
        )

    async def disconnect(self) -> None:
        if self._filesystem._s3 is not None:
            await self._filesystem._s3.close()


class S3Fetcher(CloudFetcher):
    """The fetcher `s3`: `remote.storage.url` is `s3://bucket/prefix`, also spelled `s3a`.

    Options are those of `s3fs.S3FileSystem`: `key`, `secret`, `token`, `profile`, `anon`, `endpoint_url`,
    `requester_pays`, and the JSON objects `client_kwargs` (`region_name`, `verify`) and `config_kwargs` (botocore's
    `Config`: `s3.addressing_style`, `proxies`).
    """

    protocol = "s3"
    extra = "s3"
    store_type = _S3Store

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """As `ComposedFetcher.options`."""
        config = {
            "connect_timeout": timeouts.connect_s,
            "read_timeout": timeouts.read_s,
            "retries": {"mode": "standard", "total_max_attempts": 1},
            "max_pool_connections": _CONNECTIONS,
        }
        return with_defaults(given, {"config_kwargs": config})

    def prepare(self, filesystem: Any, timeouts: Timeouts) -> None:
        """As `CloudFetcher.prepare`: a client takes a while to make, and its credentials to find."""
        filesystem.retries = 1
        filesystem.session = _session(filesystem.kwargs)
        sync(filesystem.loop, filesystem.set_session, timeout=_OPEN_TIMEOUT_S)


def _session(arguments: Mapping[str, Any]) -> Any:
    """As s3fs makes one, but for the description of S3's operations, which every session would parse for itself.

    That takes twenty times as long as all the rest of a client, and a task of Spark's has a client of its own.
    """
    from aiobotocore.session import AioSession  # noqa: PLC0415 - the extra brings it

    session = AioSession(**arguments)
    session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
    return session


@cache
def _descriptions(data_path: str | None) -> Any:
    from botocore.loaders import create_loader  # noqa: PLC0415 - as above

    return create_loader(data_path)

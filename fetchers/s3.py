"""Segments in Amazon S3 and stores that speak its protocol, by the client that s3fs makes.

Rules of the file:

- botocore's own chain finds the credentials (options, environment, profile, instance or workload identity), and renews
  them before they expire.
- The reader above decides what is retried, so botocore tries once.
- s3fs makes the client. The requests are the client's own methods, and its errors come as they are.
"""

from __future__ import annotations

import asyncio
import os
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from fsspec.asyn import sync

from fetchers._cloud import BODY_BYTES, CloudFetcher, CloudStore, Page, Questions, receive
from fetchers._http_answer import is_deleted
from fetchers._options import OPTIONS, Timeouts, check_endpoint, check_objects, with_defaults
from fetchers._ranges import EndTold, range_of, size_of_range, told_end
from remote_fetch.errors import ConfigError, StorageDenied, StorageUnavailable
from remote_fetch.failures.store_errors import RefusedError, is_past_the_end
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import Buffer

__all__ = ["S3Fetcher", "page_of"]

_CONNECTIONS = 64
"""More than the threads of one reader, so that no thread waits for a connection. botocore's default is 10."""
_OPEN_TIMEOUT_S = 30
_HEAD_START_S = 0.05
_MUST_RENEW_S = 600
"""Seconds before the end of credentials from which on botocore lets all requests wait for the renewal."""
_NO_ENDPOINT = "Invalid endpoint: "
"""The beginning of botocore's error."""
_ENVIRONMENTS_ENDPOINT = "the endpoint of AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or ~/.aws/config"
_ACCESS_POINT = re.compile(r"^arn:[^/]*:(outpost/[^/]*/)?accesspoint/")
_OF_LISTINGS = frozenset({"CommonPrefixes", "Contents", "IsTruncated", "KeyCount", "Name"})
"""Elements of ListBucketResult. botocore makes an answer without any of them out of a body that is something else."""


def page_of(answer: Mapping[str, Any]) -> Page:
    """The page in an answer to ListObjectsV2.

    Raises StorageUnavailable for an answer that is no listing, and for one that goes on and does not tell where. A
    store that knows only the first version of the request gives such a one. It never passes for a complete listing.
    """
    if _OF_LISTINGS.isdisjoint(answer):
        raise StorageUnavailable("the answer of the store is no listing")
    folders, objects = answer.get("CommonPrefixes", ()), answer.get("Contents", ())
    # botocore takes "True" for false, and some servers leave IsTruncated out: a token goes on in any case. Others give
    # one with the last page too. Then the page after it is empty, and says so.
    is_over = answer.get("IsTruncated") is False and not folders and not objects
    next_page = None if is_over else answer.get("NextContinuationToken") or None
    if answer.get("IsTruncated") and next_page is None:
        raise StorageUnavailable("the listing goes on, and the store does not tell where (NextContinuationToken)")
    return Page(
        tuple(folder["Prefix"] for folder in folders),
        tuple(ObjectInfo(found["Key"], found["Size"]) for found in objects),
        next_page,
    )


class _S3Store(CloudStore):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._questions = Questions()

    async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
        byte_range = range_of(start, end)
        asked = {} if byte_range is None else {"Range": byte_range}
        client = await self._client(bucket)
        arguments = self._arguments(client, "GetObject", Bucket=bucket, Key=key, **asked)
        try:
            answer = await client.get_object(**arguments)
        except Exception as error:
            if is_past_the_end(error) and told_end(start, _size_told_by(error)):
                raise EndTold from error
            if is_deleted(_headers_of(error)):
                raise RefusedError(410) from None
            raise
        body = answer["Body"]
        try:
            identity = tuple(str(answer.get(name, "")) for name in ("VersionId", "ETag", "LastModified"))
            self.identities.check(f"{bucket}/{key}", identity if any(identity) else None)
            is_whole = any(identity) and answer["ResponseMetadata"]["HTTPStatusCode"] == 200
            whole_bytes = answer.get("ContentLength") if is_whole else None
            size_bytes = size_of_range(start, end, answer.get("ContentRange"), whole_bytes)
            return await receive(body.iter_chunks(BODY_BYTES), size_bytes)
        finally:
            body.close()

    async def get_size(self, bucket: str, key: str) -> int | None:
        client = await self._client(bucket)
        answer = await client.head_object(**self._arguments(client, "HeadObject", Bucket=bucket, Key=key))
        size_bytes: int | None = answer.get("ContentLength")
        return size_bytes

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        asked = {} if page is None else {"ContinuationToken": page}
        client = await self._client(bucket)
        arguments = self._arguments(client, "ListObjectsV2", Bucket=bucket, Prefix=prefix, Delimiter="/", **asked)
        return page_of(await client.list_objects_v2(**arguments))

    def signed_urls(self, bucket: str, keys: Sequence[str], expires_s: int) -> Sequence[str]:
        return self.wait_for(self._presigned, bucket, keys, expires_s)

    async def _presigned(self, bucket: str, keys: Sequence[str], expires_s: int) -> list[str]:
        if self._filesystem.anon:
            raise ConfigError("without credentials (anon=true) no URL can be signed", key="remote.storage.options.anon")
        client = await self._client(bucket)
        client.meta.events.register_first("choose-signer.s3.GetObject", _version_4, unique_id="remote-fetch")
        valid_s = await self._valid_s(expires_s)
        urls = []
        for key in keys:
            asked = self._arguments(client, "GetObject", Bucket=bucket, Key=key)
            url = await client.generate_presigned_url("get_object", Params=asked, ExpiresIn=valid_s)
            _check_headers(url)
            urls.append(url)
        return urls

    async def _valid_s(self, expires_s: int) -> int:
        """How long a URL can be valid: no longer than temporary credentials, if their end is known."""
        credentials = await self._ending_credentials()
        if credentials is None:
            return expires_s
        await credentials.get_frozen_credentials()  # renews them if they end soon
        # The end itself is not public. The seconds after which a renewal would be needed tell it.
        left_s = bisect_left(range(1, expires_s + 1), True, key=credentials.refresh_needed)
        if left_s < 1:
            raise StorageDenied("the credentials have expired", hint="Renew them")
        return left_s

    async def disconnect(self) -> None:
        client = await self._filesystem.get_s3()
        if client is not None:
            await client.close()

    async def _client(self, bucket: str) -> Any:
        """The filesystem's client, or with its option `cache_regions` a client for the region of the bucket."""
        await self._filesystem.set_session()  # makes a new client if the last was closed
        credentials = await self._ending_credentials()
        if credentials is not None and credentials.refresh_needed():
            renewal = asyncio.ensure_future(self._questions.ask("credentials", credentials.get_frozen_credentials))
            renewal.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio would log it
            if credentials.refresh_needed(_MUST_RENEW_S):
                await renewal
            else:  # the credentials are good, and botocore passes by a renewal that has begun
                await asyncio.wait((renewal,), timeout=_HEAD_START_S)
        return await self._filesystem.get_s3(bucket)

    async def _ending_credentials(self) -> Any:
        """The credentials, if botocore renews them before they end. Else None."""
        filesystem = self._filesystem
        if filesystem.anon or filesystem.key is not None or "aws_access_key_id" in filesystem.client_kwargs:
            return None
        credentials = await filesystem.session.get_credentials()
        return credentials if hasattr(credentials, "refresh_needed") else None

    def _arguments(self, client: Any, operation: str, **asked: str) -> dict[str, Any]:
        """The arguments of a request: `asked`, and each option of the user that `operation` accepts.

        The options are `s3_additional_kwargs` and `requester_pays` of s3fs. They may hold arguments of other
        operations.
        """
        filesystem = self._filesystem
        of_options = {**filesystem.s3_additional_kwargs, **filesystem.req_kw}
        taken = client.meta.service_model.operation_model(operation).input_shape.members if of_options else ()
        return {**{name: value for name, value in of_options.items() if name in taken and value is not None}, **asked}


def _headers_of(error: Exception) -> Mapping[str, str]:
    """The headers of the answer that botocore's error is about."""
    headers: Mapping[str, str] = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers


def _size_told_by(error: Exception) -> str | None:
    """The Content-Range of an answer 416. Amazon's S3 has none, and tells the size in the body (ActualObjectSize)."""
    size = getattr(error, "response", {}).get("Error", {}).get("ActualObjectSize")
    return _headers_of(error).get("content-range") or (None if size is None else f"bytes */{size}")


def _version_4(signature_version: Any, **context: Any) -> str | None:
    """Let botocore sign URLs by Signature Version 4. Its default for URLs is Version 2 in old regions.

    None leaves all else to botocore: requests, access points of several regions, directory buckets.
    """
    return "s3v4-query" if signature_version == "v4-query" else None


def _check_headers(url: str) -> None:
    """Raise ConfigError unless a GET of the URL alone is enough: some options are headers, which a URL cannot carry."""
    headers = parse_qs(urlsplit(url).query).get("X-Amz-SignedHeaders")
    if headers != ["host"]:
        raise ConfigError(
            "with these options a URL cannot be signed by Signature Version 4 for a GET without further headers",
            key="remote.storage.options.*",
            hint="Leave out requester_pays, keys of customers (SSE-C) and config_kwargs.signature_version",
        )


def _check_authorities(given: Mapping[str, Any]) -> None:
    """Raise ConfigError if the file of certificate authorities (CA) is not there. Plain HTTP needs none."""
    file = given.get("verify", os.environ.get("AWS_CA_BUNDLE") or None)
    is_plain = str(given.get("endpoint_url", "")).startswith("http://")
    if isinstance(file, str) and not is_plain and not os.path.exists(file):
        raise ConfigError(
            f"`verify` of {OPTIONS}client_kwargs, or AWS_CA_BUNDLE, names a file that is not there",
            key=OPTIONS + "client_kwargs",
        )


class S3Fetcher(CloudFetcher):
    """The fetcher `s3`: `remote.storage.url` is `s3://bucket/prefix`, also spelled `s3a`.

    Options are those of `s3fs.S3FileSystem`: `key`, `secret`, `token`, `profile`, `anon`, `endpoint_url`,
    `requester_pays`, and the JSON objects `client_kwargs` (`region_name`, `verify`) and `config_kwargs` (botocore's
    `Config`: `s3.addressing_style`, `proxies`).
    """

    protocol = "s3"
    extra = "s3"
    hands_options_on = True
    store_type = _S3Store
    usual_options = (
        "key", "secret", "token", "profile", "anon", "endpoint_url", "requester_pays", "client_kwargs", "config_kwargs",
    )  # fmt: skip
    mistakes: ClassVar[Mapping[str, tuple[str, str, str]]] = {
        "ProfileNotFound": (
            "profile",
            "AWS's configuration files have no such profile",
            "Name a profile of ~/.aws/config or ~/.aws/credentials, here or in AWS_PROFILE",
        ),
        "InvalidRegionError": (
            "client_kwargs",
            "the name of the region is none",
            'Name one as in {"region_name": "eu-west-1"}, here or in AWS_REGION',
        ),
    }

    def root_of(self, url: str) -> str:
        """As `CloudFetcher.root_of`. The ARN of an access point has colons for slashes, which botocore takes too."""
        return _ACCESS_POINT.sub(lambda found: found[0].replace("/", ":"), super().root_of(url))

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """As `ComposedFetcher.options`."""
        from remote_fetch.sdks.s3 import DirectSession  # noqa: PLC0415 - the extra brings what it loads

        config = {
            "connect_timeout": timeouts.connect_s,
            "read_timeout": timeouts.read_s,
            "retries": {"mode": "standard", "total_max_attempts": 1},
            "max_pool_connections": _CONNECTIONS,
            "http_session_cls": DirectSession,
        }
        check_objects(given, ("client_kwargs", "config_kwargs"))
        check_endpoint(given)
        of_client = given.get("client_kwargs", {})
        check_endpoint(of_client)
        _check_authorities({**given, **of_client})
        return with_defaults(given, {"config_kwargs": config})

    def prepare(self, filesystem: Any, timeouts: Timeouts) -> None:
        """As `CloudFetcher.prepare`: makes the client, with its credentials."""
        filesystem.session = _session(filesystem.kwargs)
        try:
            sync(filesystem.loop, filesystem.set_session, timeout=_OPEN_TIMEOUT_S)
        except ValueError as error:
            if str(error).startswith(_NO_ENDPOINT):
                check_endpoint({"endpoint_url": ""}, _ENVIRONMENTS_ENDPOINT)
            raise
        check_endpoint({"endpoint_url": filesystem.s3.meta.endpoint_url}, _ENVIRONMENTS_ENDPOINT)


def _session(arguments: Mapping[str, Any]) -> Any:
    """A session as s3fs makes it, but with descriptions of S3's operations that all sessions of the process share.

    To parse them takes twenty times as long as the rest of a client, and each task of Spark has a client of its own.
    """
    from aiobotocore.session import AioSession  # noqa: PLC0415 - the extra brings it

    session = AioSession(**arguments)
    session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
    return session


@cache
def _descriptions(data_path: str | None) -> Any:
    from botocore.loaders import create_loader  # noqa: PLC0415 - as above

    return create_loader(data_path)

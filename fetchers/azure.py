"""Segments in Azure Blob Storage, with the credentials and the account that adlfs finds.

Rules of the file:

- adlfs and azure-identity find the credentials (options, environment, workload or managed identity). The SDK renews
  them.
- The client is made here, because adlfs gives its own neither timeouts nor a limit of retries. A listing that goes on
  after credentials were looked up again twice, which closes the client, makes another one.
- No redirect is followed: the SDK would take the bytes and the listings of any host for the store's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from fetchers._cloud import CloudFetcher, CloudStore, Page, Questions
from fetchers._options import OPTIONS, Timeouts
from fetchers._ranges import EndTold, range_of, size_of_range, told_end
from fetchers._signing import MAX_EXPIRY_S
from remote_fetch.errors import ConfigError, StorageUnavailable
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import Buffer

__all__ = ["AzureFetcher"]

_MAX_GET_BYTES = 1 << 40
"""The SDK splits a larger read into several GETs. The reader has already cut ranges to size."""
_DELEGATION = timedelta(hours=1)
"""How long a key of user delegation is valid at least. Signatures with it share it."""
_CLOCKS_DIFFER = timedelta(minutes=5)
"""A key of user delegation begins this much in the past: the service's clock may be late."""


class _AzureStore(CloudStore):
    _delegation: tuple[datetime, Any] | None = None
    _is_closed = False

    def _client(self) -> Any:
        """The client, or another one after it was closed. Runs in the loop."""
        filesystem = self._filesystem
        if self._is_closed:
            self._is_closed = False
            filesystem.service_client = _client_of(filesystem, filesystem.timeouts)
            self.closed_with_store(filesystem.service_client)
        return filesystem.service_client

    async def get_range(self, bucket: str, key: str, start: int, end: int | None) -> Buffer:
        is_range = range_of(start, end) is not None
        answers: list[Any] = []

        def first_alone(request: Any) -> None:  # the SDK asks again if a body breaks off, whatever its limit of retries
            if answers and answers[-1].status_code != 416:  # of an empty blob it has to
                raise StorageUnavailable("the store broke off")

        def check(response: Any) -> None:  # before the body is read
            answer = response.http_response
            answers.append(answer)
            if answer.status_code == 416 and told_end(start, answer.headers.get("Content-Range")) and is_range:
                raise EndTold
            if answer.status_code in (200, 206):
                self.identities.check(f"{bucket}/{key}", answer.headers.get("ETag"))
            if is_range and answer.status_code in (200, 206):
                size_of_range(start, end, answer.headers.get("Content-Range"), None)

        blob = self._client().get_blob_client(bucket, key)
        try:
            stream = await blob.download_blob(
                offset=start if is_range else None,
                length=None if end is None else end - start,
                max_concurrency=1,
                raw_request_hook=first_alone,
                raw_response_hook=check,
            )
        except BaseException:
            for answer in answers:  # the SDK leaves them open if the read is cancelled
                answer.internal_response.close()
            raise
        kept = _Kept()
        await stream.readinto(kept)
        if kept.size_bytes != stream.size:
            raise StorageUnavailable(f"the store broke off after {kept.size_bytes} of {stream.size} bytes")
        return kept.data()

    async def get_size(self, bucket: str, key: str) -> int | None:
        found = await self._client().get_blob_client(bucket, key).get_blob_properties()
        size_bytes: int | None = found.size
        return size_bytes

    async def list_page(self, bucket: str, prefix: str, page: str | None) -> Page:
        container = self._client().get_container_client(bucket)
        pages = container.walk_blobs(name_starts_with=prefix, delimiter="/").by_page(page)
        folders, objects = [], []
        async for found in await anext(pages):
            if hasattr(found, "prefix"):
                folders.append(found.name)
            elif not _is_folder(found):
                objects.append(ObjectInfo(found.name, found.size))
        return Page(tuple(folders), tuple(objects), pages.continuation_token or None)

    def signed_urls(self, bucket: str, keys: Sequence[str], expires_s: int) -> Sequence[str]:
        return self.wait_for(self._with_sas, bucket, keys, expires_s)

    async def _with_sas(self, container: str, keys: Sequence[str], expires_s: int) -> list[str]:
        from azure.storage.blob import BlobSasPermissions, generate_blob_sas  # noqa: PLC0415 - the extra brings it

        client = self._client()
        until = datetime.now(UTC) + timedelta(seconds=expires_s)
        key = await self._signing_key(client, until)
        urls = []
        for name in keys:
            url = client.get_blob_client(container, name).url
            sas = generate_blob_sas(
                client.account_name,
                container,
                name,
                permission=BlobSasPermissions(read=True),
                expiry=until,
                protocol="https" if url.startswith("https://") else None,
                **key,
            )
            urls.append(f"{url}?{sas}")
        return urls

    async def _signing_key(self, client: Any, until: datetime) -> Mapping[str, Any]:
        """The account's key, or a key that Azure gives an identity for some time (user delegation)."""
        if hasattr(client.credential, "account_key"):
            return {"account_key": client.credential.account_key}
        if not hasattr(client.credential, "get_token"):
            raise ConfigError(
                "with a SAS, or without credentials, no URL can be signed",
                key="remote.storage.options.*",
                hint="Give account_key or a connection_string with it, or an identity that has the role Storage Blob "
                "Delegator",
            )
        known = self._delegation
        if known is None or known[0] < until:
            begin = datetime.now(UTC) - _CLOCKS_DIFFER
            expiry = min(max(until, begin + _DELEGATION), begin + timedelta(seconds=MAX_EXPIRY_S))
            known = self._delegation = (expiry, await client.get_user_delegation_key(begin, expiry))
        return {"user_delegation_key": known[1]}

    async def disconnect(self) -> None:
        self._is_closed = True
        await self._filesystem.service_client.close()


def _is_folder(found: Any) -> bool:
    """Accounts with a hierarchical namespace list an empty blob for each folder."""
    return bool((found.metadata or {}).get("hdi_isfolder") == "true")


class _Kept:
    """A file in memory that keeps the written parts without a copy."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self._parts.append(data)
        self.size_bytes += len(data)
        return len(data)

    def data(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class AzureFetcher(CloudFetcher):
    """The fetcher `azure`: `remote.storage.url` is `abfs://container@account.dfs.core.windows.net/prefix`, or
    `az://container/prefix` beside an account among the options. `abfss`, `wasb` and `wasbs` mean the same.

    Options are those of `adlfs.AzureBlobFileSystem`: `connection_string`, or `account_name` with `account_key`,
    `sas_token`, `tenant_id`, `client_id` and `client_secret`, or `anon`. Without any of them, azure-identity's
    DefaultAzureCredential finds the credentials. `account_host` names another endpoint.
    """

    protocol = "abfs"
    extra = "azure"
    store_type = _AzureStore

    def root_of(self, url: str) -> str:
        """As `ComposedFetcher.root_of`."""
        return super().root_of(f"abfs://{url.partition('://')[2]}")

    def options(self, given: Mapping[str, Any], timeouts: Timeouts) -> Mapping[str, Any]:
        """As `ComposedFetcher.options`. Raises ConfigError if no account is named, and for a malformed string."""
        connection = given.get("connection_string") or os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
        account = given.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        if not connection and not account:
            raise ConfigError(
                "no account is named",
                key=OPTIONS + "account_name",
                hint=f"Set {OPTIONS}account_name or {OPTIONS}connection_string, or name it in the URL: "
                "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
            )
        if connection and not all("=" in part for part in str(connection).split(";") if part.strip()):
            raise ConfigError(
                "the connection string has a part that is no NAME=VALUE",
                key=OPTIONS + "connection_string",
                hint="Copy it whole from the account's access keys: AccountName=...;AccountKey=...;EndpointSuffix=...",
            )
        from remote_fetch.sdks.azure import not_anonymous  # noqa: PLC0415 - the extra brings what it loads

        return not_anonymous(given)

    def prepare(self, filesystem: Any, timeouts: Timeouts) -> None:
        """As `CloudFetcher.prepare`: replaces adlfs's client."""
        filesystem.timeouts = timeouts
        filesystem.service_client = _client_of(filesystem, timeouts)


class _Patient:
    """A credential of azure-identity, which is asked by `Questions`."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential
        self._questions = Questions()

    async def get_token(self, *scopes: str, **options: Any) -> Any:
        ask = partial(self._credential.get_token, *scopes, **options)
        return await self._questions.ask((scopes, *sorted(options.items())), ask)

    async def close(self) -> None:
        await self._credential.close()


def _client_of(filesystem: Any, timeouts: Timeouts) -> Any:
    """A client for the account and the credentials that adlfs has found."""
    from remote_fetch.sdks.azure import client_of  # noqa: PLC0415 - the extra brings what it loads

    if hasattr(filesystem.credential, "get_token") and not isinstance(filesystem.credential, _Patient):
        filesystem.credential = _Patient(filesystem.credential)
    return client_of(
        filesystem,
        connection_timeout=timeouts.connect_s,
        read_timeout=timeouts.read_s,
        retry_total=0,
        max_single_get_size=_MAX_GET_BYTES,
    )

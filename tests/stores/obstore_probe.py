"""Shows what obstore does where a fetcher needs an answer: the evidence of `docs/design/0020-obstore.md`.

`python -m tests.stores.obstore_probe` prints the findings. `pytest -p tests.stores.obstore_probe
tests/stores/test_cloud_contracts.py` runs the contract with obstore under the fetchers of the clouds.

Rules of the file:

- It is no test and no part of the product. It needs `pip install obstore==0.12.1`, which no extra brings.
- A failure is known by the class of obstore's exception, which is all that obstore promises about it.
- obstore does not retry: each finding is about one request.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from fetchers._cloud import CloudFetcher, CloudStore, Page
from fetchers.azure import AzureFetcher
from fetchers.gcs import GcsFetcher
from fetchers.s3 import S3Fetcher
from remote_fetch.failures.store_errors import RefusedError
from remote_fetch.fetch.spi import ObjectInfo
from remote_fetch.model import Buffer
from tests.stores.azure_server import ACCOUNT
from tests.stores.range_server import Fault, FaultKind, RangeServer
from tests.stores.s3_server import BUCKET, S3Server, client_of, s3_server

obstore: Any = importlib.import_module("obstore")
stores: Any = importlib.import_module("obstore.store")
exceptions: Any = importlib.import_module("obstore.exceptions")

T = TypeVar("T")

_KEY, _SECRET = "root-key", "root-secret-4711"
_NAME = "a/big.log"
_CHILD_S = 20
_GET_BYTES, _GETS = 64 << 10, 400
_STATUSES = (400, 401, 403, 404, 410, 412, 416, 429, 500, 503)
_FAULTS = (
    FaultKind.STALL_ANSWER,
    FaultKind.STALL_BODY,
    FaultKind.DROP,
    FaultKind.TRUNCATE,
    FaultKind.SHORT_RANGE,
    FaultKind.WRONG_RANGE,
    FaultKind.UNNAMED_RANGE,
    FaultKind.WHOLE,
)


def _options(timeout_s: float) -> dict[str, Any]:
    timeout = timedelta(seconds=timeout_s)
    client = {"allow_http": True, "timeout": timeout, "connect_timeout": timeout}
    return {"client_options": client, "retry_config": {"max_retries": 0, "retry_timeout": timeout}}


def _s3(endpoint: str, bucket: str = BUCKET, key: str = _KEY, secret: str = _SECRET, timeout_s: float = 2.0) -> Any:
    return stores.S3Store(
        bucket,
        endpoint=endpoint,
        access_key_id=key,
        secret_access_key=secret,
        region="us-east-1",
        **_options(timeout_s),
    )


# ------------------------------------------------------------------------------- obstore under the fetchers


class _Store(CloudStore):
    """A store that asks through obstore. Subclasses make the client from the filesystem's options."""

    def client(self, bucket: str) -> Any:
        raise NotImplementedError

    def read(self, path: str, start: int, end: int | None) -> Buffer:
        bucket, _, key = path.partition("/")
        whole = start == 0 and end is None
        asked = None if whole else {"range": {"offset": start} if end is None else (start, end)}

        def ask() -> Buffer:
            answer = obstore.get(self.client(bucket), key, options=asked)
            told = tuple(str(answer.meta.get(name)) for name in ("version", "e_tag", "last_modified"))
            self.identities.check(f"{bucket}/{key}", told)
            return memoryview(answer.bytes())

        return _classified(ask)

    def _page(self, prefix: str, bucket: str, key: str, page: str | None) -> Page:
        def ask() -> Page:
            found = obstore.list_with_delimiter(self.client(bucket), key)
            folders = tuple(f"{folder.rstrip('/')}/" for folder in found["common_prefixes"])
            return Page(folders, tuple(ObjectInfo(info["path"], info["size"]) for info in found["objects"]), None)

        return cast(Page, self._mapped(prefix, _classified, ask))

    def close(self) -> None:
        """obstore closes nothing."""


class _S3Store(_Store):
    def client(self, bucket: str) -> Any:
        filesystem = self._filesystem
        return _s3(filesystem.endpoint_url, bucket, filesystem.key, filesystem.secret, self._timeout_s or 30.0)


class _GcsStore(_Store):
    def client(self, bucket: str) -> Any:
        endpoint = self._filesystem.base.partition("/storage/")[0]
        return stores.GCSStore(bucket, skip_signature=True, base_url=endpoint, **_options(self._timeout_s or 30.0))


class _AzureStore(_Store):
    def client(self, bucket: str) -> Any:
        said = dict(part.partition("=")[::2] for part in self._filesystem.connection_string.split(";"))
        key, endpoint = said["AccountKey"], said["BlobEndpoint"]
        options = _options(self._timeout_s or 30.0)
        return stores.AzureStore(bucket, account_name=ACCOUNT, account_key=key, endpoint=endpoint, **options)


def _classified(ask: Callable[[], T]) -> T:
    """Raise the status that the class of obstore's exception stands for, or ConnectionError for all other classes."""
    try:
        return ask()
    except FileNotFoundError as error:
        raise RefusedError(404, "NoSuchKey") from error  # it tells no code
    except exceptions.PermissionDeniedError as error:
        raise RefusedError(403) from error
    except exceptions.UnauthenticatedError as error:
        raise RefusedError(401) from error
    except exceptions.PreconditionError as error:
        raise RefusedError(412) from error
    except exceptions.BaseError as error:
        raise ConnectionError("obstore does not tell") from error


def pytest_configure() -> None:
    """Put obstore under the fetchers, if this file is pytest's plugin."""
    replaced: dict[type[CloudFetcher], type[_Store]]
    replaced = {S3Fetcher: _S3Store, GcsFetcher: _GcsStore, AzureFetcher: _AzureStore}
    for fetcher, store in replaced.items():
        fetcher.store_type = store


# ------------------------------------------------------------------------------------------- what it prints


def _said(ask: Callable[[], Any]) -> str:
    try:
        return f"{len(ask())} bytes"
    except Exception as error:
        return type(error).__name__


def answers() -> None:
    """One line for each status and each broken answer: the class of obstore's exception."""
    with RangeServer() as server:
        store = _s3(server.url)
        server.files = {f"{BUCKET}/{_NAME}": bytes(10_000)}
        plans = {f"status {status}": Fault(FaultKind.STATUS, status=status) for status in _STATUSES}
        for name, fault in {**plans, **{kind.value: Fault(kind) for kind in _FAULTS}}.items():
            server.plan = lambda asked, fault=fault: fault  # type: ignore[misc]
            print(f"{name:>16}: {_said(lambda: obstore.get_range(store, _NAME, start=100, end=1000))}")


def missing(server: S3Server) -> None:
    """An object that is missing, and one in a bucket that is missing."""
    for bucket in (BUCKET, "nowhere"):
        here = _said(lambda bucket=bucket: obstore.get(_s3(server.endpoint, bucket), "gone").bytes())  # type: ignore[misc]
        print(f"'gone' in {bucket!r}: {here}")


def names(server: S3Server) -> None:
    """A name that S3 allows, and boto3 asks for."""
    name = "a//b.log"
    error = _said(lambda: client_of(server.endpoint, _KEY, _SECRET).get_object(Bucket=BUCKET, Key=name))
    print(f"{name!r}: boto3 {error}, obstore {_said(lambda: obstore.get(_s3(server.endpoint), name).bytes())}")


def forked(server: S3Server, ask: Callable[[], object], what: str) -> None:
    """A read in the child of a process that has read."""
    ask()
    child = os.fork()
    if child == 0:
        signal.alarm(_CHILD_S)
        ask()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    ended = "reads" if status == 0 else f"does not end in {_CHILD_S} s"
    print(f"after a fork, with a store of its own, the child of {what}: {ended}")


def costs(get: Callable[[int], object], what: str) -> None:
    """The process's CPU time for a small GET."""
    get(0)
    began_s = time.process_time()
    for at in range(_GETS):
        get(at * _GET_BYTES)
    print(f"CPU for a GET of 64 KiB by {what}: {(time.process_time() - began_s) / _GETS * 1000:.2f} ms")


def main() -> int:
    """Print all findings."""
    answers()
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder, "s3"), Path(folder, "tier")) as server:
        server.put(_NAME, bytes(_GET_BYTES * _GETS))
        fetcher, store = S3Fetcher(), _s3(server.endpoint)
        fetcher.configure(server.configs())
        ours = fetcher.open_store(server.configs())
        missing(server)
        names(server)
        costs(lambda at: ours.get(_NAME, at, at + _GET_BYTES), "the fetcher s3")
        costs(lambda at: obstore.get_range(store, _NAME, start=at, length=_GET_BYTES), "obstore")
        forked(server, lambda: S3Fetcher().open_store(server.configs()).get(_NAME, 0, 10), "the fetcher s3")
        forked(server, lambda: obstore.get_range(_s3(server.endpoint), _NAME, start=0, end=10), "obstore")
        fetcher.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One check of a set-up with its result, and the words for what an error of a check usually means.

Rules of the file:

- The error of a check becomes its text, with the hint of the error or the usual cause.
- An error of another package is passed on, unless a broker or its client said it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaException

from remote_fetch.errors import RemoteFetchError, SegmentNotFound, StorageDenied, StorageTimeout, StorageUnavailable
from remote_fetch.failures.broker_errors import broker_says
from remote_fetch.fetch.plugins import scheme_of

__all__ = ["Check", "State", "failed", "tried"]

T = TypeVar("T")

_HINTS: tuple[tuple[type[RemoteFetchError], str, str], ...] = (
    (
        StorageDenied,
        "s3",
        (
            "wrong credentials or region, a clock more than 15 minutes off, or no s3:ListBucket: without it S3 says "
            "403 of an object that is not there"
        ),
    ),
    (StorageDenied, "", "wrong or missing credentials, or one that has expired; a clock that is off"),
    (
        SegmentNotFound,
        "",
        "metadata and storage do not belong together: another bucket, key prefix or layout; or a broker deleted it",
    ),
    (
        StorageTimeout,
        "",
        "no server answers there: check the region, the endpoint, a proxy or a firewall; or raise the timeouts",
    ),
    (
        StorageUnavailable,
        "s3",
        (
            "a wrong endpoint; servers of your own mostly want path style: "
            'remote.storage.options.config_kwargs={"s3": {"addressing_style": "path"}}'
        ),
    ),
    (StorageUnavailable, "", "a wrong host, port or scheme in the URL or the endpoint"),
)
"""The usual causes: (error class, scheme of the URL or all, hint). The first match counts."""


class State(StrEnum):
    """The result of a check. `ADVICE`: it works, and could be better."""

    OK = "ok"
    ADVICE = "advice"
    FAILED = "FAILED"
    SKIPPED = "skipped"


class Check(NamedTuple):
    """One check with its result, or with the reason why it was skipped."""

    name: str
    state: State
    text: str
    hint: str | None = None


def tried(name: str, url: str | None, call: Callable[[], tuple[str, T]]) -> tuple[Check, T | None]:
    """Make a check. Returns its description and its result, None if it failed. `url` is that of the storage."""
    try:
        text, found = call()
        return Check(name, State.OK, text), found
    except RemoteFetchError as error:
        return failed(name, url, error), None
    except KafkaException as error:
        return Check(name, State.FAILED, broker_says(error)), None


def failed(name: str, url: str | None, error: RemoteFetchError) -> Check:
    """The check that ended with this error. The hint of the error has its own line."""
    return Check(name, State.FAILED, str(error).removesuffix(f". {error.hint}"), error.hint or _hint(url, error))


def _hint(url: str | None, error: RemoteFetchError) -> str | None:
    kind = "s3" if scheme_of(url or "").startswith("s3") else ""
    return next((hint for cls, of_kind, hint in _HINTS if isinstance(error, cls) and of_kind in ("", kind)), None)

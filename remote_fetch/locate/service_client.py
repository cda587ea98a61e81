"""The client of a service that vends access to segments (`remote-fetch serve`): its questions, repeated and checked.

Rules of the file:

- A question is asked again until the deadline while the service cannot be reached, or asks for a pause (Retry-After).
- Credentials go to the configured address only: over TLS with a certificate that is checked, or to loopback.
- The answer's bytes are foreign: `formats.service_answers` checks them.
- A timeline that the client knows is not sent again: its tag (ETag) asks whether there is another one.
"""

from __future__ import annotations

import math
import random
import ssl
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from remote_fetch.deadline import Deadline
from remote_fetch.errors import (
    Cancelled,
    ConfigError,
    RemoteFetchError,
    SegmentNotFound,
    StorageConnectTimeout,
    StorageDenied,
    StorageThrottled,
    StorageUnavailable,
    UnsupportedFormat,
)
from remote_fetch.formats.service_answers import (
    SegmentsPage,
    parse_locations,
    parse_refusal,
    parse_segments,
    parse_storage,
)
from remote_fetch.hosts import is_loopback
from remote_fetch.locate.broker_settings import given_settings, tls_context
from remote_fetch.locate.service_credentials import ServiceCredentials
from remote_fetch.locate.service_http import Answer, HttpChannel
from remote_fetch.model import RemoteLogSegmentMetadata, TopicIdPartition

__all__ = ["ReadRefused", "ServiceClient", "Tagged"]

_KEY = "remote.locator.url"
_LONGEST_PAUSE_S = 60.0
_LONGEST_OWN_PAUSE_S = 1.0
"""Pauses without a Retry-After double up to this: a service that was restarted is found soon."""
_MAX_TAG_CHARS = 200
_UNVERIFIED = ("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm")
"""With these librdkafka accepts any certificate. SCRAM does not send the password to the brokers, HTTP Basic does."""


class Tagged(NamedTuple):
    """A page, and the tag of the timeline that it is of; "" if the service gives none."""

    page: SegmentsPage
    tag: str


class ReadRefused(StorageDenied):
    """The service says that the brokers refuse READ (403)."""


class ServiceClient:
    """The service at `url`, asked with the credentials and the TLS settings in librdkafka's `properties`. Thread-safe.

    It is a `LocationSource`.

    Raises ConfigError for a URL, credentials or files that cannot be used, and MissingExtra.

    `timeout_ms` bounds a question as a whole, with its repetitions. The first pause between two is `backoff_ms`.
    """

    def __init__(
        self, url: str, properties: Mapping[str, Any], *, connect_timeout_ms: int, timeout_ms: int, backoff_ms: int
    ) -> None:
        base = _checked(url)
        self._credentials = ServiceCredentials(properties)
        tls = None if base.scheme == "http" else _tls(properties)
        self._channel = HttpChannel(base, tls, connect_timeout_s=connect_timeout_ms / 1000)
        self._timeout_s, self._backoff_s = timeout_ms / 1000, backoff_ms / 1000
        self._closed = threading.Event()

    @property
    def answered_s(self) -> float:
        """When the service last answered (`time.monotonic`), 0 if it never has."""
        return self._channel.answered_s

    def layout(self) -> tuple[str, Mapping[str, str]]:
        """As `LocationSource.layout`. Raises as `segments`."""
        return parse_storage(self._get("/v1/storage").body)

    def segments(self, partition: TopicIdPartition, first_offset: int = 0, known_tag: str = "") -> Tagged | None:
        """One page of a partition's readable segments, from `first_offset` on. None: `known_tag` is still their tag.

        Raises StorageDenied for wrong credentials, ReadRefused, SegmentNotFound if the service has no such partition,
        CorruptSegment for an answer that is wrong, UnsupportedFormat for one that is not of this API; after the
        deadline StorageThrottled, StorageUnavailable and StorageTimeout; and Cancelled after `close`.
        """
        path = _path_of(partition)
        query = f"?{urlencode({'from': first_offset})}" if first_offset else ""
        answer = self._get(path + query, known_tag)
        if answer.status == 304:
            return None
        tag = answer.headers.get("etag", "")
        return Tagged(parse_segments(answer.body, partition, first_offset), tag if _is_tag(tag) else "")

    def locations(self, metadata: RemoteLogSegmentMetadata, *, refused: bool) -> Mapping[str, str]:
        """As `LocationSource.locations`. Each answer is a new one. Raises as `segments`."""
        query = {
            "from": metadata.start_offset,
            "to": metadata.end_offset + 1,
            "objects": "all",
            "segment": str(metadata.segment_id.id),
        }
        answer = self._get(f"{_path_of(metadata.topic_id_partition)}?{urlencode(query)}")
        found = parse_locations(answer.body, metadata)
        if found is None:
            raise SegmentNotFound("the service does not know the segment (any more)")
        return found

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """As `confluent_kafka.Consumer.set_sasl_credentials`."""
        self._credentials.set_password(username, password)

    def close(self) -> None:
        """Close the connections. Later questions, and those that wait for a repetition, raise Cancelled."""
        self._closed.set()
        self._channel.close()

    def _get(self, path: str, known_tag: str = "") -> Answer:
        """The answer to a GET. It is repeated after pauses, which double, with jitter, and heed Retry-After."""
        deadline, pause_s = Deadline.after(self._timeout_s), self._backoff_s
        while True:
            asked_s = 0.0
            try:
                answer = self._asked(path, known_tag, deadline)
                if answer.status == 200 or (answer.status == 304 and known_tag):
                    return answer
                asked_s = _retry_after_s(answer)
                raise _error_of(answer)
            except (StorageThrottled, StorageUnavailable, StorageConnectTimeout):
                wait_s = max(pause_s * random.uniform(0.5, 1.5), asked_s)
                if wait_s >= deadline.left_s:
                    raise
            self._closed.wait(wait_s)
            pause_s = min(2 * pause_s, _LONGEST_OWN_PAUSE_S)

    def _asked(self, path: str, known_tag: str, deadline: Deadline) -> Answer:
        if self._closed.is_set():
            raise Cancelled("the connection to the service was closed")
        headers = {"Authorization": self._credentials.authorization()}
        if known_tag:
            headers["If-None-Match"] = known_tag
        return self._channel.get(path, headers, deadline)


def _checked(url: str) -> SplitResult:
    """The parts of the service's URL. Raises ConfigError unless credentials may be sent there."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{_KEY} is no URL", key=_KEY) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"{_KEY} is an https:// URL, such as https://host:8443", key=_KEY)
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{_KEY} has a user name in it",
            key=_KEY,
            hint="The service is asked with sasl.username and sasl.password, or those of remote.locator.sasl.*",
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"{_KEY} ends with its path: there is no query and no fragment", key=_KEY)
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(
            f"{_KEY} is http://, and the credentials would be sent in the clear",
            key=_KEY,
            hint="Use https://; plain HTTP is for loopback only",
        )
    return parts


def _tls(properties: Mapping[str, Any]) -> ssl.SSLContext:
    known = {name: value for name, value in given_settings(properties).items() if name not in _UNVERIFIED}
    try:
        return tls_context(known)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the TLS settings cannot be used for the service: {error}", key="ssl.ca.location") from None


def _path_of(partition: TopicIdPartition) -> str:
    return f"/v1/topics/{quote(partition.topic, safe='')}/partitions/{partition.partition}/segments"


def _is_tag(text: str) -> bool:
    """Whether a foreign text can be sent back as a header."""
    return text.isascii() and text.isprintable() and len(text) <= _MAX_TAG_CHARS


def _retry_after_s(answer: Answer) -> float:
    """The seconds of Retry-After; 0 if it has none. A date is not understood, and gives none."""
    text = answer.headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_PAUSE_S) if math.isfinite(seconds) and seconds >= 0 else 0.0


def _error_of(answer: Answer) -> RemoteFetchError:
    """The error of an answer that is no 200."""
    status, refusal = answer.status, parse_refusal(answer.body)
    code = f"{status} {refusal.code}".strip()
    text = f"({code}{': ' if refusal.message else ''}{refusal.message})"
    if status == 401:
        return StorageDenied(
            f"the service does not accept the credentials {text}",
            hint="Check sasl.username, sasl.password or oauth_cb, and the mechanism that the service is configured for",
        )
    if status == 403:
        return ReadRefused(f"the brokers refuse READ to the service's client {text}")
    if status == 404:
        return SegmentNotFound(f"the service does not know what was asked for {text}")
    if status == 429:
        return StorageThrottled(f"the service asks for fewer requests {text}")
    if status >= 500:
        return StorageUnavailable(f"the service cannot answer now {text}", may_have_sent=False)
    if 300 <= status < 400:
        return UnsupportedFormat(
            f"the service redirects, which is not followed ({status})", hint=f"Name its last address in {_KEY}"
        )
    return UnsupportedFormat(f"the service does not understand the question {text}")

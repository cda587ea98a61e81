"""The signed URLs that a service gave: asked for once by all threads, kept until shortly before they expire.

Rules of the file:

- URLs are secrets. They are in no repr, no log and no error.
- Bounded in number and size: the segments that were read last are remembered.
- No wait is without a deadline. Threads that wait for the same answer get the same error.
- The life that a URL names is believed within bounds. A wrong one costs a request: the URL is refused, and asked for
  again.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from remote_fetch.errors import RemoteFetchError, StorageTimeout, StorageUnavailable
from remote_fetch.fetch.spi import LocationSource
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata

__all__ = ["Located", "UrlCache", "life_s"]

_MOST_SEGMENTS = 1024
_MOST_CHARS = 16 << 20
"""All URLs together. Usual ones take 3 KiB a segment."""
_UNKNOWN_LIFE_S = 60.0
"""The life of a URL that does not name one."""
_LONGEST_LIFE_S = 900.0
_MARGIN_S = 10.0
"""A URL is not used when this much of its life is left, or a third of a life of less than 30 s."""
_SECONDS = ("X-Amz-Expires", "X-Goog-Expires")
"""Parameters that name a life in seconds: Signature Version 4 of S3 and of Google Cloud Storage."""
_MAX_DIGITS = 12

_Key = tuple[RemoteLogSegmentId, bytes | None]


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """The answer about one segment: URLs by the names of objects. `until_s` is a time of the cache's clock."""

    urls: Mapping[str, str] = field(repr=False)
    until_s: float

    @property
    def chars(self) -> int:
        """The size of the answer."""
        return sum(len(name) + len(url) for name, url in self.urls.items())


class UrlCache:
    """The URLs of the segments that were read last. Thread-safe."""

    def __init__(
        self, source: LocationSource, patience_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Future[Located]] = OrderedDict()
        self._sizes: dict[_Key, int] = {}
        self._chars = 0

    def locate(self, metadata: RemoteLogSegmentMetadata, refused: Located | None = None) -> Located:
        """The URLs of a segment. `refused` is the answer with a URL that the store refused: another one is given.

        Raises the errors of the source, and StorageTimeout if another thread's question takes too long.
        """
        key = (metadata.segment_id, metadata.custom_metadata)
        with self._lock:
            found = self._known.get(key)
            is_asked = found is None or not self._is_usable(found, refused)
            if found is None or is_asked:
                self._forget(key)
                found = self._known[key] = Future()
            self._known.move_to_end(key)
            while len(self._known) > _MOST_SEGMENTS:
                self._forget(next(iter(self._known)))
        return self._ask(key, found, metadata, refused is not None) if is_asked else self._wait(found)

    def _is_usable(self, found: Future[Located], refused: Located | None) -> bool:
        """Whether an answer is on its way, or there and good. None has an error: `_ask` forgets it first."""
        return not found.done() or (found.result() is not refused and self._clock() < found.result().until_s)

    def _ask(self, key: _Key, asked: Future[Located], metadata: RemoteLogSegmentMetadata, refused: bool) -> Located:
        try:
            urls = dict(self._source.locations(metadata, refused=refused))
        except BaseException as error:
            with self._lock:
                if self._known.get(key) is asked:
                    self._forget(key)
            passed_on = (
                error if isinstance(error, RemoteFetchError) else StorageUnavailable("the service was not asked")
            )
            asked.set_exception(passed_on)
            raise
        life = min((life_s(url) for url in urls.values()), default=_UNKNOWN_LIFE_S)
        located = Located(urls, self._clock() + life - min(_MARGIN_S, life / 3))
        asked.set_result(located)
        self._weigh(key, asked, located)
        return located

    def _weigh(self, key: _Key, asked: Future[Located], located: Located) -> None:
        """Count an answer that is remembered, and forget those that were not used for longest."""
        with self._lock:
            if self._known.get(key) is not asked:
                return
            self._sizes[key] = located.chars
            self._chars += located.chars
            while self._chars > _MOST_CHARS and (oldest := next(iter(self._known))) != key:
                self._forget(oldest)

    def _forget(self, key: _Key) -> None:
        self._known.pop(key, None)
        self._chars -= self._sizes.pop(key, 0)

    def _wait(self, asked: Future[Located]) -> Located:
        try:
            return asked.result(self._patience_s)
        except LateError:
            raise StorageTimeout("the service did not say in time where the segment's objects are") from None
        except RemoteFetchError as error:
            raise copy.copy(error) from error.__cause__  # each thread adds to its own


def life_s(url: str) -> float:
    """How long a URL that was just signed is valid, in seconds, at least 1 and at most 15 minutes.

    A life in seconds is taken as it is, so that a wrong clock of this machine does not matter. A time (Azure's `se`) is
    compared with this machine's clock.
    """
    try:
        query = parse_qs(urlsplit(url).query, max_num_fields=100)
    except ValueError:
        return 1.0
    found = [_seconds(query[name][0]) for name in _SECONDS if name in query]
    if "se" in query:
        found.append(_until(query["se"][0]))
    known = [life for life in found if life is not None]
    return min(max(min(known, default=_UNKNOWN_LIFE_S), 1.0), _LONGEST_LIFE_S)


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def _until(text: str) -> float | None:
    try:
        end = datetime.fromisoformat(text)
        return (end.replace(tzinfo=end.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return None

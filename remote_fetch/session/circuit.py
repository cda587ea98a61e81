"""Stops asking a storage for a while if it fails, so that many failures do not become many waits.

Rules of the file:

- The code is pure. The caller passes the time.
- A state is a frozen value. Every face follows the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from remote_fetch.errors import ErrorKind, RemoteFetchError, StorageDenied

__all__ = ["Circuit", "is_storage_failure"]

_FIRST_PAUSE_MS = 1_000
_LONGEST_PAUSE_MS = 60_000

_STORAGE_FAILURES = frozenset(
    {ErrorKind.AUTH, ErrorKind.CONNECT_TIMEOUT, ErrorKind.READ_TIMEOUT, ErrorKind.THROTTLED, ErrorKind.UNAVAILABLE}
)


def is_storage_failure(error: RemoteFetchError) -> bool:
    """Whether an error concerns the storage as a whole, and not a single object."""
    return error.kind in _STORAGE_FAILURES and not (isinstance(error, StorageDenied) and error.is_of_object)


@dataclass(frozen=True, slots=True)
class Circuit:
    """Whether to ask a storage. An open circuit means no, until `retry_at_ms`. The pause doubles with each failure."""

    failures: int = 0
    retry_at_ms: int = 0
    reason: str = ""
    first_pause_ms: int = _FIRST_PAUSE_MS

    def is_open(self, now_ms: int) -> bool:
        """Whether the caller should not ask the storage at this time."""
        return self.failures > 0 and now_ms < self.retry_at_ms

    def failed(self, reason: str, now_ms: int) -> Circuit:
        """The circuit after one more failure."""
        pause_ms = min(self.first_pause_ms << min(self.failures, 16), _LONGEST_PAUSE_MS)
        return replace(self, failures=self.failures + 1, retry_at_ms=now_ms + pause_ms, reason=reason)

    def worked(self) -> Circuit:
        """The circuit after a success."""
        return self if self.failures == 0 else replace(self, failures=0, retry_at_ms=0, reason="")

"""Stops asking a storage for a while if it fails, so that many failures do not become many waits.

Rules of the file:

- Pure. The caller passes the time, in seconds of a monotonic clock.
- A state is a frozen value. Every face follows the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from remote_fetch.errors import ErrorKind, RemoteFetchError, StorageDenied

__all__ = ["Circuit", "is_storage_failure"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0

_STORAGE_FAILURES = frozenset(
    {ErrorKind.AUTH, ErrorKind.CONNECT_TIMEOUT, ErrorKind.READ_TIMEOUT, ErrorKind.THROTTLED, ErrorKind.UNAVAILABLE}
)


def is_storage_failure(error: RemoteFetchError) -> bool:
    """Whether an error concerns the storage as a whole, and not a single object."""
    return error.kind in _STORAGE_FAILURES and not (isinstance(error, StorageDenied) and error.is_of_object)


@dataclass(frozen=True, slots=True)
class Circuit:
    """Whether to ask a storage. An open circuit means no, until `retry_at_s`. The pause doubles with each failure."""

    failures: int = 0
    retry_at_s: float = 0.0
    reason: str = ""
    first_pause_s: float = _FIRST_PAUSE_S

    def is_open(self, now_s: float) -> bool:
        """Whether the caller should not ask the storage at this time."""
        return self.failures > 0 and now_s < self.retry_at_s

    def failed(self, reason: str, now_s: float) -> Circuit:
        """The circuit after one more failure."""
        pause_s = min(self.first_pause_s * 2 ** min(self.failures, 16), _LONGEST_PAUSE_S)
        return replace(self, failures=self.failures + 1, retry_at_s=now_s + pause_s, reason=reason)

    def worked(self) -> Circuit:
        """The circuit after a success."""
        return self if self.failures == 0 else replace(self, failures=0, retry_at_s=0.0, reason="")

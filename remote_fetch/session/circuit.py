"""When a storage is given up for a while: the circuit that keeps a storm of failures from becoming a storm of waits.

Rules of the file: pure; time is passed in; a state is a value, and the same for every face.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from remote_fetch.errors import ErrorKind

__all__ = ["Circuit", "is_storage_failure"]

_FIRST_PAUSE_MS = 1_000
_LONGEST_PAUSE_MS = 60_000

_STORAGE_FAILURES = frozenset(
    {
        ErrorKind.AUTH,
        ErrorKind.CONNECT_TIMEOUT,
        ErrorKind.READ_TIMEOUT,
        ErrorKind.THROTTLED,
        ErrorKind.UNAVAILABLE,
    }
)


def is_storage_failure(kind: ErrorKind) -> bool:
    """Whether an error is about the storage as a whole, and not about one object in it."""
    return kind in _STORAGE_FAILURES


@dataclass(frozen=True, slots=True)
class Circuit:
    """Whether a storage is worth asking. Open means no, until `retry_at_ms`; pauses double while failures go on."""

    failures: int = 0
    retry_at_ms: int = 0
    reason: str = ""
    first_pause_ms: int = _FIRST_PAUSE_MS

    def is_open(self, now_ms: int) -> bool:
        """Whether the storage should be left alone at this moment."""
        return self.failures > 0 and now_ms < self.retry_at_ms

    def failed(self, reason: str, now_ms: int) -> Circuit:
        """The circuit after one more failure."""
        pause_ms = min(self.first_pause_ms << min(self.failures, 16), _LONGEST_PAUSE_MS)
        return replace(self, failures=self.failures + 1, retry_at_ms=now_ms + pause_ms, reason=reason)

    def worked(self) -> Circuit:
        """The circuit after a success."""
        return self if self.failures == 0 else replace(self, failures=0, retry_at_ms=0, reason="")

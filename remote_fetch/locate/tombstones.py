"""How long a reader of the metadata topic may be away before it may have missed a deletion (KIP-1266).

Rules of the file:

- A topic that is compacted drops a tombstone `delete.retention.ms` after it was written, at the earliest. A reader that
  was away for longer must begin with the first record.
- The brokers are asked for the topic's configuration. If they do not tell it, the topic counts as compacted, with
  Kafka's default of 24 hours.
- The configuration may change while a process runs, so it is asked for again after a long absence.
- Times are wall-clock times of this machine in milliseconds, because a saved replay outlives the process. A time in the
  future is not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException

__all__ = ["Tombstones"]

_DEFAULT_RETENTION_MS = 86_400_000
_ASKED_AGAIN_AFTER_MS = 60_000
_SKEW_MS = 60_000
"""How far clocks of two machines may differ, or one clock may be set back."""


class Tombstones:
    """Whether deletions of one topic may be missed. Used by one thread at a time.

    `settings` asks for the topic's configuration, and raises KafkaException.
    """

    def __init__(self, settings: Callable[[], Mapping[str, str]]) -> None:
        self._settings = settings
        self._asked_ms: int | None = None
        self._kept_ms: int | None = None

    def missed(self, since_ms: int, now_ms: int) -> bool:
        """Whether a reader that last read to the end at `since_ms` may have missed a tombstone by `now_ms`."""
        age_ms = now_ms - since_ms
        if self._asked_ms is None or min(age_ms, now_ms - self._asked_ms) > _ASKED_AGAIN_AFTER_MS:
            self._kept_ms, self._asked_ms = self._ask(), now_ms
        return self._kept_ms is not None and not -_SKEW_MS <= age_ms <= self._kept_ms

    def _ask(self) -> int | None:
        """How long the topic keeps a tombstone, None if it is not compacted."""
        try:
            settings = self._settings()
        except KafkaException:
            return _DEFAULT_RETENTION_MS
        if "compact" not in settings.get("cleanup.policy", "compact"):
            return None
        text = settings.get("delete.retention.ms", "")
        return int(text) if text.isdecimal() else _DEFAULT_RETENTION_MS

"""Saves the replays of the metadata topic in a cache, and loads saved ones: much at once soon, and the rest at the end.

Rules of the file:

- Replays are packed and written outside of the reader's lock, so that readers do not wait for it.
- Without a cache, or without the identity of the topic, nothing is saved and nothing is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from remote_fetch.locate.replay import Replay
from remote_fetch.locate.replay_cache import ReplayCache, TopicOrigin
from remote_fetch.locate.saved_replay import SavedReplay
from remote_fetch.model import Uuid
from remote_fetch.observe import Notice

__all__ = ["ReplaySaver"]

_SAVED_AFTER_OFFSETS = 5_000
"""A reading that advanced this far is saved soon after. A shorter one is saved at the end."""
_SAVE_DELAY_S = 5.0
"""The first records of a reader matter more than the saving of timelines."""


class ReplaySaver:
    """Saves the replays of one reader. `origin` is the identity of the topic, None if it is not known.

    `unsaved` gives the reader's replays, each with the part of it that was read since it was saved. Another thread may
    call it.
    """

    def __init__(
        self,
        cache: ReplayCache | None,
        unsaved: Callable[[TopicOrigin], Collection[tuple[Replay, Collection[SavedReplay]]]],
    ) -> None:
        self.origin: TopicOrigin | None = None
        self._cache = cache
        self._is_closed = False
        self._unsaved = unsaved
        self._saving = threading.Lock()  # for a save
        self._timer: threading.Timer | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is a cache, and it is open."""
        return self._cache is not None and not self._is_closed

    @property
    def remarks(self) -> tuple[Notice, ...]:
        """The reports of the cache so far, also those of the last save, which `close` makes."""
        return () if self._cache is None else self._cache.remarks

    def load(self, topic_id: Uuid | None, numbers: Collection[int]) -> Mapping[int, SavedReplay]:
        """The saved replays of these metadata partitions, as `ReplayCache.load`."""
        if self._cache is None or self.origin is None or not numbers:
            return {}
        return self._cache.load(self.origin, topic_id, numbers)

    def save_soon(self, replay: Replay) -> None:
        """Save in a while if much was read, so that other processes need not wait for the end of this one."""
        if not self.is_on or (self._timer is not None and self._timer.is_alive()):
            return
        if sum(replay.unsaved().values()) >= _SAVED_AFTER_OFFSETS:
            self._timer = threading.Timer(_SAVE_DELAY_S, self._save)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Save what is not saved, and close the cache. May be called twice."""
        cache, timer = self._cache, self._timer
        if cache is None or self._is_closed:
            return
        if timer is not None:
            timer.cancel()
            timer.join()
        self._save()
        self._is_closed = True
        cache.close()

    def _save(self) -> None:
        with self._saving:
            cache, origin = self._cache, self.origin
            if cache is None or origin is None:
                return
            for replay, saved in self._unsaved(origin):
                if saved and cache.save(origin, saved):
                    replay.saved_to.update({each.number: each.next_offset for each in saved})

"""The manifests of Aiven's plug-in that were read. A manifest does not change, and each range of its segment needs it.

Rules of the file:

- The cache is bounded in number and in size.
- No thread waits for another one without a deadline.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fetchers.layouts.aiven_keys import Cipher
from fetchers.layouts.aiven_manifest import Manifest

__all__ = ["Known", "ManifestCache"]

_MAX_MANIFESTS = 1024
_MAX_CHUNKS = 1 << 20
_PATIENCE_S = 1.0
"""How long a call waits for another one that fetches the same manifest, before it fetches that itself."""


@dataclass(slots=True)
class Known:
    """A manifest that has been read. The cipher costs an RSA operation, which a listing does not need."""

    manifest: Manifest
    cipher: Cipher | None = None


class ManifestCache:
    """Manifests already read, the last ones used; and turns, so that several threads do not fetch the same one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns = tuple(threading.Lock() for _ in range(32))
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._chunks = 0

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """A context in which no other thread fetches this manifest, unless that takes long."""
        lock = self._turns[hash(name) % len(self._turns)]
        is_held = lock.acquire(timeout=_PATIENCE_S)
        try:
            yield
        finally:
            if is_held:
                lock.release()

    def get(self, name: str) -> Known | None:
        """The manifest under a name, if it is still known."""
        with self._lock:
            if name in self._known:
                self._known.move_to_end(name)
            return self._known.get(name)

    def put(self, name: str, known: Known) -> None:
        """Keep a manifest, and let go of those that were not used for longest."""
        with self._lock:
            self._forget(name)
            self._known[name] = known
            self._chunks += _weight(known.manifest)
            while len(self._known) > _MAX_MANIFESTS or (self._chunks > _MAX_CHUNKS and len(self._known) > 1):
                self._forget(next(iter(self._known)))

    def forget(self, name: str) -> None:
        """Forget a manifest that cannot be used, if it is known."""
        with self._lock:
            self._forget(name)

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            self._chunks -= _weight(known.manifest)


def _weight(manifest: Manifest) -> int:
    """How many numbers the manifest keeps for its chunks: none if they can be reckoned."""
    return len(manifest.chunks.starts) if manifest.is_compressed else 0

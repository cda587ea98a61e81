"""Notices that an object was replaced while it was read. The read then fails: the object that it began with is gone.

A segment's object is written once. If another one takes its name (a restored bucket, a lifecycle rule that went wrong),
ranges of both would be put together to records that no log has. So a store tells with each range what it knows of the
object's identity (ETag, generation, version; of a file its size and modification time), and all ranges have to agree.

Rules of the file:

- The answer is compared, and no condition is sent: servers ignore conditions, and a weak ETag cannot be one.
- Identities belong to the fetcher. Its stores are replaced when credentials are renewed, in the middle of a read.
- Bounded: the objects that were read last are remembered. After a change the next read begins with the new object.
- An object that was replaced is not absent: an index that was written again is no index that does not exist.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable

from remote_fetch.errors import SegmentNotFound
from remote_fetch.recent import Recent

__all__ = ["Identities"]

_MOST_OBJECTS = 4096


class Identities:
    """The identities of the objects that one fetcher has read last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Recent[str, Hashable] = Recent(_MOST_OBJECTS)

    def check(self, path: str, identity: Hashable | None) -> None:
        """Remember the identity of the object at `path`, None if the store tells none.

        Raises SegmentNotFound, with `is_absent` False, if an earlier range came from another object.
        """
        if identity is None:
            return
        with self._lock:
            known = self._known.pop(path, identity)
            if known != identity:
                raise SegmentNotFound("the object was replaced while it was read", is_absent=False)
            self._known[path] = identity

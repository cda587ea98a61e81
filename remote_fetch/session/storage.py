"""The remote storage of a session: the reader of ranges and indexes, sizes, settings, and the observer.

Rules of the file:

- It has no method. `Session` makes it, and closes its parts. The functions of `prepare` and `scan` take it.
"""

from __future__ import annotations

from dataclasses import dataclass

from remote_fetch.config.settings import Settings
from remote_fetch.fetch.readahead import RangeReader
from remote_fetch.fetch.sizes import SegmentSizes
from remote_fetch.observe import Observer

__all__ = ["Storage"]


@dataclass(frozen=True, slots=True)
class Storage:
    """The remote storage of one session. Its parts may be used from several threads."""

    reader: RangeReader
    sizes: SegmentSizes
    observe: Observer
    settings: Settings

"""Callbacks of the application that the session calls, and that keep no consumer alive.

A callback may be a method of an object that has the consumer. The session is held by its threads, so a callback that
the session holds would never be garbage-collected, nor would the consumer.

Rules of the file:

- The consumer itself holds the callback, as the parent does.
- Consumers with the same callback get the same stand-in, because they may share clients (design note 0013).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["weakly"]


class _StandIn:
    """Calls the callback as long as a consumer holds it, and then does nothing."""

    def __init__(self, callback: Callable[..., Any]) -> None:
        self.callback = weakref.ref(callback)

    def __call__(self, *arguments: Any) -> Any:
        callback = self.callback()
        return None if callback is None else callback(*arguments)


_STAND_INS: weakref.WeakValueDictionary[int, _StandIn] = weakref.WeakValueDictionary()


def weakly(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The stand-in for a callback. The callback itself if Python can hold it only in the usual way."""
    known = _STAND_INS.get(id(callback))
    if known is None or known.callback() is not callback:  # the id may be another object's by now
        try:
            known = _STAND_INS[id(callback)] = _StandIn(callback)
        except TypeError:
            return callback
    return known

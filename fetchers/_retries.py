"""Asks a store again for what belongs to a listing: the reader above retries reads, and nothing retries listings.

`remote_fetch.deadline.retry` asks until a time is over, which would be many requests to a store that asks for fewer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from remote_fetch.errors import RetriableError

__all__ = ["asked_again"]

T = TypeVar("T")

_PAUSES_S = (0.2, 0.4)
"""The pauses before the question is asked again. After the last one the error is raised."""


def asked_again(ask: Callable[[], T]) -> T:
    """The answer of `ask`, which is called again after a failure that may pass, at most twice. Raises its errors."""
    for pause_s in _PAUSES_S:
        try:
            return ask()
        except RetriableError:
            time.sleep(pause_s)
    return ask()

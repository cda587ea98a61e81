"""Streaming queries in tests: waited for with a deadline, and begun again if Spark was too slow to begin.

Rules of the file:

- Spark gives the Python process that plans a query ten seconds to start, and has no setting for that. On a busy machine
  that is too short.
- Such a failure shows nothing about the query, because the query has not begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["DEADLINE_S", "is_slow_start", "run_to_end"]

DEADLINE_S = 300


def is_slow_start(error: object) -> bool:
    """Whether a query ended because its Python process was not there in time."""
    return "Python worker failed to connect back" in str(error)


def run_to_end(start: Callable[[], Any]) -> Any:
    """Wait for the end of a query that ends without a `stop`. Raises the error of the query."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        query = start()
        try:
            assert query.awaitTermination(max(1, int(deadline_s - time.monotonic()))), "the query does not end"
            return query
        except Exception as error:
            if not is_slow_start(error) or time.monotonic() > deadline_s:
                raise
        finally:
            query.stop()

"""Python's garbage collector in the processes that Spark forks for its tasks and for planning.

Rules of the file: nothing of Spark is imported; in any other process nothing is done.
"""

from __future__ import annotations

import gc
import sys
from functools import cache

__all__ = ["spare_the_collector"]

_DAEMON = "pyspark.daemon"
"""The main module of the process that Spark forks workers from, and so of these."""


def spare_the_collector() -> None:
    """In a worker of Spark, once: let the collector pass over what is loaded by now; to be called when work is done.

    A worker collects after every task and every plan, and walking through all modules takes longer than opening a
    session does.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        _freeze()


@cache
def _freeze() -> None:
    """Freeze, once. Cached, because asking the collector whether anything is frozen walks through all of it, too."""
    gc.freeze()

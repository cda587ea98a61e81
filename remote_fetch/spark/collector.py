"""Python's garbage collector in the processes that Spark forks for its tasks and for planning.

Rules of the file:

- Spark is not imported.
- In any other process nothing is changed.
"""

from __future__ import annotations

import gc
import sys
from functools import cache

__all__ = ["freeze_gc"]

_DAEMON = "pyspark.daemon"
"""The main module of the process that Spark forks workers from, and so of these."""


def freeze_gc() -> None:
    """Freeze the objects that exist now, once and only in a worker of Spark; call it when a task or a plan is done.

    PySpark's worker collects after every task and every plan. Walking through all loaded modules takes longer than
    opening a session does.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        _freeze()


@cache
def _freeze() -> None:
    """Freeze, once. Cached, because `gc.get_freeze_count` walks through all frozen objects, too."""
    gc.freeze()

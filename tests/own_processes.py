"""Ends processes that a test has started and that do not end in time.

A test that reads the output of such a process would wait for ever.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["killed_after"]


@contextmanager
def killed_after(timeout_s: float, process: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill the process at the end of the block, and in the middle of it after `timeout_s`: then its output ends."""
    timer = threading.Timer(timeout_s, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        process.kill()

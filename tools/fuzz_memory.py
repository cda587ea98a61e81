"""The peak of this process's memory, and a bound for it, as far as the system supports them."""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["limit_memory", "peak_bytes", "reset_peak"]

MAX_DATA_BYTES = 4 << 30


def peak_bytes() -> int:
    """The peak of this process's memory since `reset_peak`, 0 if the system does not report it.

    Linux tells it in /proc. Its `ru_maxrss` is never less than the memory of the process that started this one.
    """
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:")), 0)
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def reset_peak() -> None:
    """Reset the peak to the current memory if the system can (Linux). Otherwise it stays the peak of the process."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def limit_memory() -> None:
    """Limit this process to 4 GiB, so that a hostile size ends the process and not the machine.

    Do not call it under a sanitizer, whose own tables are larger.
    """
    if os.environ.get("LD_PRELOAD"):
        return
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))

"""The fault of a file in words. Pure.

Rules of the file:

- The words are those of the operating system, without its number and without the name: the caller knows both.
"""

from __future__ import annotations

__all__ = ["file_fault"]


def file_fault(error: Exception) -> str:
    """The fault of a file that could not be opened, read or decoded: `No such file or directory`."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__

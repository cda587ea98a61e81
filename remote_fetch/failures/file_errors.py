"""The faults of files: in words, and of a content that has another shape than it was saved in. Pure.

Rules of the file:

- The words are those of the operating system, without its number and without the name: the caller knows both.
"""

from __future__ import annotations

__all__ = ["MISSHAPEN", "file_fault"]

MISSHAPEN = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""Python's errors while values are taken out of JSON that has another shape than it was saved in."""


def file_fault(error: Exception) -> str:
    """The fault of a file that could not be opened, read or decoded: `No such file or directory`."""
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__

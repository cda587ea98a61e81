"""Plug-ins by name: the entry points of this package first, then those of every installed distribution.

To look through all installed distributions means to read a file of each, which can take longer than a small read.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, distribution

__all__ = ["own_entry_point"]


def own_entry_point(group: str, name: str) -> EntryPoint | None:
    """This package's own entry point of that name, or None if it has none."""
    try:
        entries = distribution("remote-fetch").entry_points
    except PackageNotFoundError:  # imported from its sources, as it stands
        return None
    return next((entry for entry in entries if entry.group == group and entry.name == name), None)

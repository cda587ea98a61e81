"""Plug-ins by name: the entry points of this package first, and of all that is installed only where it has none such.

Looking through all that is installed reads a file of every distribution, which takes longer than many a read.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, distribution

__all__ = ["own_entry_point"]


def own_entry_point(group: str, name: str) -> EntryPoint | None:
    """This package's own entry point of that name, None where it has none: then others may."""
    try:
        entries = distribution("remote-fetch").entry_points
    except PackageNotFoundError:  # imported from its sources, as it stands
        return None
    return next((entry for entry in entries if entry.group == group and entry.name == name), None)

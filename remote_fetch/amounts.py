"""Sizes, times, counts and foreign texts as people read them. Pure."""

from __future__ import annotations

__all__ = ["counted", "human_bytes", "human_time", "one_line", "per_get"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def counted(count: int, noun: str) -> str:
    """A count with its noun, which takes an s in the plural: 1 segment, 2 segments."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def human_bytes(size_bytes: float) -> str:
    """A size with a binary unit: 512 B, 1.5 MiB."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[0]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


def per_get(mean_bytes: float) -> str:
    """The mean size of GETs, after a comma. Empty if there was none."""
    return f", mean {human_bytes(mean_bytes)} per GET" if mean_bytes else ""


def human_time(seconds: float) -> str:
    """A duration as minutes and seconds (0:07), hours (2:03:00), or days and hours (3 d 4 h). Rounded up."""
    whole = int(seconds) + (seconds > int(seconds))
    if whole >= 86_400:
        return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def one_line(text: str, instead: str = "") -> str:
    """The text with `instead`, or escapes, in place of what cannot be printed, such as a line feed in a name."""
    return "".join(letter if letter.isprintable() else instead or ascii(letter)[1:-1] for letter in text)

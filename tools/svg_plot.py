"""Draws bars as an SVG file for the documentation, without a library or a script. A diff of the file can be read.

Rules of the file:

- Standard library only.
- Numbers go in, and text comes out. The same numbers give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bars", "render"]

WIDTH = 720
LABEL_WIDTH = 230
BAR_HEIGHT = 14
BAR_GAP = 3
GROUP_GAP = 14
TOP = 44
COLOURS = ("#1f6f8b", "#e0a030", "#8a8f98", "#b5483a", "#5b8c5a", "#6a5acd")


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of horizontal bars, each with numbers for some of the series. A bar longer than `cut` is cut there."""

    title: str
    unit: str
    series: Sequence[str]
    groups: Sequence[tuple[str, Mapping[str, float]]]
    cut: float | None = None


def render(bars: Bars) -> str:
    """Return the SVG text.

    Raises ValueError if no number is positive, or if a group has a number for a series that is not in `series`.
    """
    numbers = [number for _, values in bars.groups for number in values.values()]
    unknown = {name for _, values in bars.groups for name in values}.difference(bars.series)
    if unknown or not numbers or max(numbers) <= 0:
        raise ValueError(f"nothing to draw in {bars.title!r}: {sorted(unknown)}")
    most = max(numbers) if bars.cut is None else min(max(numbers), bars.cut)
    scale = (WIDTH - LABEL_WIDTH - 80) / most
    body: list[str] = []
    y = TOP
    for label, values in bars.groups:
        shown = [(at, name) for at, name in enumerate(bars.series) if name in values]
        middle = y + len(shown) * (BAR_HEIGHT + BAR_GAP) / 2
        body.append(_text(LABEL_WIDTH - 8, middle, label, anchor="end"))
        for at, name in shown:
            number = values[name]
            width = min(number, most) * scale
            body.append(
                f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" '
                f'fill="{COLOURS[at % len(COLOURS)]}"/>'
            )
            broken = " ..." if number > most else ""
            body.append(_text(LABEL_WIDTH + width + 5, y + BAR_HEIGHT - 3, f"{number:,.4g}{broken}"))
            y += BAR_HEIGHT + BAR_GAP
        y += GROUP_GAP
    head = [_text(8, 16, f"{bars.title} ({bars.unit})", weight="bold"), *_legend(bars.series)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>\n' + "\n".join([*head, *body]) + "\n</svg>\n"
    )


def _legend(series: Sequence[str]) -> list[str]:
    drawn: list[str] = []
    x = 8
    for at, name in enumerate(series):
        drawn.append(f'<rect x="{x}" y="24" width="11" height="11" fill="{COLOURS[at % len(COLOURS)]}"/>')
        drawn.append(_text(x + 15, 34, name))
        x += 32 + 7 * len(name)
    return drawn


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'

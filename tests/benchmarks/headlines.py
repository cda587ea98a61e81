"""The picture of docs/performance.md, drawn from that page's own table.

`python -m tests.benchmarks.headlines` writes it. A test compares both, so that the table and the picture agree.
"""

from __future__ import annotations

from tests.benchmarks.document import PAGES, marked
from tools.svg_plot import Bars, render

__all__ = ["PICTURE", "picture"]

PAGE = PAGES.parent / "performance.md"
PICTURE = PAGES / "headlines.svg"
SERIES = ("worst shape", "best shape")


def picture() -> str:
    """The table's column *times as fast* as bars: the worst and the best shape of each row."""
    table = marked("headlines", PAGE.read_text(encoding="utf-8"))[1].strip().splitlines()
    groups = []
    for row in table[2:]:
        ours, _, values, speeds, *_ = (cell.strip().replace("`", "") for cell in row.strip("|").split("|"))
        worst, best = (float(speed) for speed in speeds.split(" to "))
        label = ours if values == "both" else f"{ours}, {values}"
        groups.append((label, dict(zip(SERIES, (worst, best), strict=True))))
    return render(Bars("Times as fast as the named peer", "1 is level; above 1 is a gain", SERIES, groups, cut=10))


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")

"""Tables for notebooks, as text in HTML.

Rules of the file:

- Pure.
- Every text is escaped: names of topics and notices come from elsewhere.
- Nothing is styled, so that a table looks as the notebook's theme has it.
- Rows and cells are bounded. A table says how many rows it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice

__all__ = ["MOST_ROWS", "facts_table", "html_table"]

MOST_ROWS = 50
_MOST_CHARACTERS = 1000
"""The most of one cell: a task may have thousands of steps."""


def html_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """A table with a caption. Each row has a cell for each heading. Of the `count` rows at most MOST_ROWS are drawn."""
    shown = [_row("td", row) for row in islice(rows, MOST_ROWS)]
    if count > MOST_ROWS:
        shown.append(f'<tr><td colspan="{len(headings)}">... and {count - MOST_ROWS} more</td></tr>')
    head = f"<thead>{_row('th', headings)}</thead>" if any(headings) else ""
    return f"<table><caption>{_lines(caption)}</caption>{head}<tbody>{''.join(shown)}</tbody></table>"


def facts_table(caption: str, facts: Mapping[str, object]) -> str:
    """A table of names and values, without those that are empty or 0."""
    found = [(name, value) for name, value in facts.items() if value]
    return html_table(caption, ("", ""), found, len(found))


def _row(cell: str, values: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{cell}>{_lines(str(value))}</{cell}>' for value in values)}</tr>"


def _lines(text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}..."
    return escape(text).replace("\n", "<br>")

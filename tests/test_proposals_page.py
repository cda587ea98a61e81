"""docs/explanation/proposals.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import each_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "proposals.md"
NAMED = sorted(set(re.findall(r"`([a-z_/0-9]+\.py(?:::\w+)?)`", PAGE.read_text(encoding="utf-8"))))


def test_the_page_names_tests() -> None:
    assert len(NAMED) >= 40


@each_of("name", NAMED, ids=str)
def test_each_test_exists(name: str) -> None:
    path, _, test = name.partition("::")
    text = (ROOT / "tests" / path).read_text(encoding="utf-8")
    assert not test or re.search(rf"^ *def {test}\(", text, re.MULTILINE)

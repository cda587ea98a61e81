"""The page of performance figures: short, with a picture that agrees with its table, and marks that benchmarks find."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks import document
from tests.benchmarks.headlines import PAGE, PICTURE, picture


def test_the_picture_is_that_of_the_table() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture()


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 900


def test_the_page_links_to_every_page_of_the_laboratory_book() -> None:
    linked = set(re.findall(r"\(performance/([^)#]+\.md)", PAGE.read_text(encoding="utf-8")))
    assert linked == {page.name for page in document.PAGES.glob("*.md")}


@pytest.mark.parametrize(
    "mark",
    [
        "bench_broker", "bench_consumer", "bench_neighbours", "bench_decode", "small_batches", "profile", "aborted",
        "threads", "cold_start", "bench_messages", "bench_metadata", "bench_stores", "bench_spark", "bench_service",
        "bench_broker_slow_store", "bench_cat", "bench_ceiling", "transactions",
    ],
)  # fmt: skip
def test_every_benchmark_finds_its_tables(mark: str) -> None:
    _, tables, _ = document.marked(mark, document.newest(mark).read_text(encoding="utf-8"))
    assert tables.strip()


def test_write_replaces_the_tables_of_the_newest_page(tmp_path: Path) -> None:
    old, new = tmp_path / "2026-01-01-x.md", tmp_path / "2026-02-01-x.md"
    for page in (old, new):
        page.write_text("a\n<!-- m: start -->\nold\n<!-- m: end -->\nb\n", encoding="utf-8")
    document.write("m", "table", tmp_path)
    assert new.read_text(encoding="utf-8") == "a\n<!-- m: start -->\ntable\n<!-- m: end -->\nb\n"
    assert "old" in old.read_text(encoding="utf-8")
    with pytest.raises(LookupError, match="no page"):
        document.newest("other", tmp_path)

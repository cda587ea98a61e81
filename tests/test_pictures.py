"""The pictures of the documentation are those of the texts beside them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cases import each_of
from tools import pictures

SOURCES = sorted(pictures.PICTURES.glob("*.mmd"))
PAGES = pictures.PICTURES.parent


def test_no_picture_is_stale() -> None:
    assert len(SOURCES) >= 6
    assert list(pictures.stale()) == []


def test_a_stale_picture(tmp_path: Path) -> None:
    """A text that was edited, a picture that is missing, and a picture without a text."""
    shutil.copytree(pictures.PICTURES, tmp_path, dirs_exist_ok=True)
    source = tmp_path / "service.mmd"
    source.write_text(source.read_text(encoding="utf-8").replace("loop", "opt"), encoding="utf-8")
    (tmp_path / "spark-dark.svg").unlink()
    (tmp_path / "other-light.svg").write_text("<svg/>", encoding="utf-8")
    assert list(pictures.stale(tmp_path)) == [
        "service-light.svg",
        "service-dark.svg",
        "spark-dark.svg",
        "other-light.svg",
    ]


@pytest.mark.scheduled  # 50 s; whether a picture is older than its text is in every run
@pytest.mark.slow
@each_of("source", SOURCES, ids=lambda path: path.stem)
def test_the_renderer_gives_the_committed_bytes(source: Path) -> None:
    for scheme in pictures.SCHEMES:
        committed = pictures.picture_of(source, scheme).read_text(encoding="utf-8")
        assert pictures.render(source.read_text(encoding="utf-8"), scheme) == committed


@each_of("source", SOURCES, ids=lambda path: path.stem)
def test_a_page_shows_it_for_both_schemes(source: Path) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES.rglob("*.md"))
    for scheme in pictures.SCHEMES:
        name = pictures.picture_of(source, scheme).name
        assert re.search(rf"!\[[^\]]+\]\([./]*pictures/{name}#only-{scheme}\)", text), name


@each_of("source", SOURCES, ids=lambda path: path.stem)
def test_it_is_an_svg_that_loads_nothing(source: Path) -> None:
    for scheme in pictures.SCHEMES:
        text = pictures.picture_of(source, scheme).read_text(encoding="utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"url\(|@import|<script|<image|foreignObject", text.replace("url(#", ""))

"""The breaches that site_check.py finds: addresses that a browser loads, and public names without a place."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from tests.cases import each_of
from tools import site_check


def found_in(folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    found = list(site_check.external(folder))
    path.unlink()
    return found


@each_of(
    "name, text",
    [
        ("page.html", '<script src="https://cdn.example/a.js"></script>'),
        ("page.html", '<link rel="stylesheet" href="//fonts.example/css">'),
        ("page.html", '<link rel="preconnect" href="https://fonts.example">'),
        ("page.html", '<img alt="a" src="HTTP://example.com/badge.svg">'),
        ("page.html", '<img alt="a" src="a.png" srcset="b.png 1x, https://example.com/b.png 2x">'),
        ("page.html", '<iframe src="https://example.com/video"></iframe>'),
        ("page.html", '<p style="background: url(https://example.com/a.png)">a</p>'),
        ("page.html", "<style>@import 'https://example.com/a.css';</style>"),
        ("page.html", '<pre class="mermaid"><code>graph TD</code></pre>'),
        ("page.html", '<a data-md-component="source" href="https://example.com/repository">a</a>'),
        ("picture.svg", '<svg><image href="https://example.com/a.png"/></svg>'),
        ("picture.svg", '<svg><style>@import url("https://example.com/font.css");</style></svg>'),
        ("site.css", "@font-face { src: url('https://example.com/font.woff2') }"),
        ("site.css", '@import "//example.com/a.css";'),
    ],
)
def test_an_address_that_a_browser_loads(name: str, text: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, name, text)
    assert len(found) == 1
    assert found[0].startswith(f"{name}: ")


@each_of(
    "name, text",
    [
        ("page.html", '<a href="https://example.com">a link</a>'),
        ("page.html", '<link rel="canonical" href="https://example.com/page.html">'),
        ("page.html", '<script src="../assets/a.js"></script><img alt="" src="data:image/png;base64,AA//">'),
        ("page.html", '<p>@import "https://example.com/a.css" and url(https://example.com)</p>'),
        ("page.html", "<script>const address = 'https://example.com'</script>"),
        ("picture.svg", '<svg xmlns="http://www.w3.org/2000/svg"><use href="#mark"/></svg>'),
        ("site.css", ".a { background: url(data:image/svg+xml;charset=utf-8,<svg/>) }"),
    ],
)
def test_an_address_that_stays_or_waits_for_a_click(name: str, text: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, name, text) == []


def inventory(*names: str) -> bytes:
    lines = "".join(f"{name} py:function 1 api.html#$ -\n" for name in names)
    return b"# Sphinx inventory version 2\n# Project: x\n# Version: 0\n# zlib\n" + zlib.compress(lines.encode())


def test_a_public_name_without_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_check, "PUBLIC", ("remote_fetch.spark",))
    (tmp_path / "objects.inv").write_bytes(inventory("remote_fetch.spark.plan", "remote_fetch.spark.register"))
    (missing,) = site_check.undocumented(tmp_path)
    assert "remote_fetch.spark.backfill is missing" in missing
    (tmp_path / "index.html").write_text("<p>a</p>")
    assert site_check.breaches(tmp_path) == [missing]


def test_no_site(tmp_path: Path) -> None:
    (breach,) = site_check.breaches(tmp_path)
    assert "make docs" in breach

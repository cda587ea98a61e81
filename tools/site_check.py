"""Checks the built documentation: no page loads anything from elsewhere, and the API reference has every public name.

    python -m tools.site_check site

Rules of the file:

- It reads files, and asks no network.
- A link that a reader clicks may lead anywhere. Scripts, styles, fonts, pictures and frames may not.
- The theme asks other hosts in two cases, and these are breaches too: for Mermaid if a page has a text of it, and for
  the numbers of a forge if the site names its repository.
- A breach names the file and what to do.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

__all__ = ["PUBLIC", "breaches", "documented", "external", "main", "undocumented"]

PUBLIC = (
    "remote_fetch",
    "remote_fetch.consumer.aio_deserializing",
    "remote_fetch.consumer.consumer",
    "remote_fetch.consumer.deserializing",
    "remote_fetch.consumer.prometheus",
    "remote_fetch.engines.topic_scan",
    "remote_fetch.errors",
    "remote_fetch.fetch.inventory",
    "remote_fetch.fetch.spi",
    "remote_fetch.model",
    "remote_fetch.observe",
    "remote_fetch.spark",
    "remote_fetch.testing.contract",
    "remote_fetch.tracing",
)
"""The modules that programs and plug-ins import. Each name of their `__all__` is in the API reference."""

_LOADED: Mapping[str, tuple[str, ...]] = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("poster", "src"),
}
"""The attributes whose address a browser loads without a click."""
_CLICKED = frozenset({"alternate", "author", "canonical", "help", "license", "next", "prev"})
"""The relations of a `link` that a browser does not load."""
_ELSEWHERE = re.compile(r"(?:^|[\s,])(?:[a-z][a-z+.-]*:)?//", re.IGNORECASE)
_OF_A_STYLE = re.compile(r"(?:url\(|@import\s+)\s*['\"]?\s*(?:https?:)?//[^\s'\")]+", re.IGNORECASE)


class _Page(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        if tag == "link" and set(given.get("rel", "").lower().split()) <= _CLICKED:
            return
        for name in _LOADED.get(tag, ()):
            if _ELSEWHERE.search(given.get(name, "")):
                self.found.append(f'<{tag} {name}="{given[name]}"> is loaded from elsewhere')
        self.found += [f"{found} is loaded from elsewhere" for found in _OF_A_STYLE.findall(given.get("style", ""))]
        if "mermaid" in given.get("class", "").split():
            self.found.append("a text of Mermaid, which the theme loads from elsewhere: see tools/pictures.py")
        if given.get("data-md-component") == "source":
            self.found.append("the repository's numbers, which the theme asks a forge for: leave `repo_url` out")

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.found += [f"{found} is loaded from elsewhere" for found in _OF_A_STYLE.findall(data)]

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._in_style = False


def external(site: Path) -> Iterator[str]:
    """The addresses elsewhere that the pages, styles and pictures of a built site load."""
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".svg"}:
            page = _Page()
            page.feed(path.read_text(encoding="utf-8"))
            found = page.found
        elif path.suffix == ".css":
            text = path.read_text(encoding="utf-8")
            found = [f"{address} is loaded from elsewhere" for address in _OF_A_STYLE.findall(text)]
        else:
            continue
        yield from (f"{path.relative_to(site)}: {breach}" for breach in dict.fromkeys(found))


def documented(site: Path) -> set[str]:
    """The names that the API reference of a built site has, from the inventory that mkdocstrings writes beside it.

    The inventory begins with four lines of text. Compressed lines follow, which begin with a name.
    """
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split(" ", 1)[0] for line in zlib.decompress(packed).decode().splitlines()}


def undocumented(site: Path) -> Iterator[str]:
    """The public names that the API reference does not have."""
    known = documented(site)
    for module in PUBLIC:
        for name in import_module(module).__all__:
            if f"{module}.{name}" not in known:
                yield f"docs/reference/api: {module}.{name} is missing: a page has to have `::: {module}.{name}`"


def breaches(site: Path) -> list[str]:
    """All that is wrong with a built site."""
    if not (site / "index.html").exists():
        return [f"{site}: no site is there; run `make docs`"]
    return [*external(site), *undocumented(site)]


def main() -> int:
    """Print the breaches. The exit code is 1 if there are any."""
    found = breaches(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
    for breach in found:
        print(breach)
    print(f"site: {len(found)} breaches" if found else "site: loads nothing from elsewhere, and has every public name")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

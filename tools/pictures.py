"""Renders the pictures of the documentation, `docs/pictures/*.mmd`, without a browser: `make pictures`.

Rules of the file:

- A picture is text, in Mermaid's language. Its two SVG files, light and dark, are committed beside it.
- The same text and the same version of the renderer give the same bytes. The renderer brings the font it measures by.
- Each SVG begins with the digest of its text and of the looks. So `stale` finds a picture that was not rendered again,
  and needs no renderer.
- Each SVG has a ground of its own, so that it can be read wherever it is shown.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["PICTURES", "SCHEMES", "main", "picture_of", "render", "stale"]

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"


def _looks(ground: str, box: str, group: str, edge: str, text: str, note: str) -> Mapping[str, Any]:
    """Mermaid's theme variables for a few colours."""
    return {
        "actorBkg": box,
        "actorBorder": edge,
        "actorLineColor": edge,
        "actorTextColor": text,
        "background": ground,
        "clusterBkg": group,
        "clusterBorder": edge,
        "edgeLabelBackground": ground,
        "fontSize": "15px",
        "labelBoxBkgColor": group,
        "labelBoxBorderColor": edge,
        "labelTextColor": text,
        "lineColor": text,
        "loopTextColor": text,
        "mainBkg": box,
        "nodeBorder": edge,
        "nodeTextColor": text,
        "noteBkgColor": note,
        "noteBorderColor": edge,
        "noteTextColor": text,
        "primaryBorderColor": edge,
        "primaryColor": box,
        "primaryTextColor": text,
        "signalColor": text,
        "signalTextColor": text,
        "textColor": text,
        "titleColor": text,
    }


SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "light": _looks("#ffffff", "#e0f2f1", "#f5f7f7", "#00897b", "#1f2933", "#fff3e0"),
    "dark": _looks("#1e2129", "#1c4a46", "#262b35", "#4db6ac", "#e4e8ee", "#4a3a1c"),
}
"""The looks of a picture on a light and on a dark page. The grounds are those of the site."""


def picture_of(source: Path, scheme: str) -> Path:
    """The SVG file of a picture's text in a scheme."""
    return source.with_name(f"{source.stem}-{scheme}.svg")


def render(text: str, scheme: str) -> str:
    """The SVG of a picture. Raises ImportError without the renderer, RuntimeError if Mermaid refuses the text."""
    import mermaidx

    svg: str = mermaidx.render(text, config=_config(scheme)).svg()
    ground = SCHEMES[scheme]["background"]
    return f"{_stamp(text, scheme)}\n{svg.replace('background-color: transparent', f'background-color: {ground}')}\n"


def stale(folder: Path = PICTURES) -> Iterator[str]:
    """The names of SVG files that are missing, were not made of the text beside them, or have no text."""
    wanted = set()
    for source in sorted(folder.glob("*.mmd")):
        text = source.read_text(encoding="utf-8")
        for scheme in SCHEMES:
            picture = picture_of(source, scheme)
            wanted.add(picture.name)
            if not picture.exists() or not picture.read_text(encoding="utf-8").startswith(_stamp(text, scheme)):
                yield picture.name
    yield from sorted({picture.name for picture in folder.glob("*.svg")} - wanted)


def main() -> int:
    """Render the pictures that are stale, all with `--all`."""
    wanted = set(stale()) if "--all" not in sys.argv[1:] else None
    for source in sorted(PICTURES.glob("*.mmd")):
        for scheme in SCHEMES:
            picture = picture_of(source, scheme)
            if wanted is None or picture.name in wanted:
                picture.write_text(render(source.read_text(encoding="utf-8"), scheme), encoding="utf-8")
                print(f"rendered {picture.name}")
    left = list(stale())
    print("pictures: " + (f"delete or mend {', '.join(left)}" if left else "current"))
    return 1 if left else 0


def _config(scheme: str) -> dict[str, Any]:
    """Mermaid's configuration. Sizes are absolute, and labels are text of SVG, which every viewer shows."""
    return {
        "deterministicIds": True,
        "fontFamily": "system-ui, sans-serif",
        "flowchart": {"curve": "basis", "htmlLabels": False, "useMaxWidth": False},
        "htmlLabels": False,
        "sequence": {"messageMargin": 30, "mirrorActors": False, "useMaxWidth": False, "width": 130},
        "theme": "base",
        "themeVariables": {"darkMode": scheme == "dark", **SCHEMES[scheme]},
    }


def _stamp(text: str, scheme: str) -> str:
    looks = json.dumps(_config(scheme), sort_keys=True)
    return f"<!-- sha256 {hashlib.sha256((text + looks).encode()).hexdigest()} -->"


if __name__ == "__main__":
    sys.exit(main())

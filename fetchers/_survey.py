"""Looks at a place where no segment was found: whether the URL or the layout is wrong, and which would be right.

Rules of the file:

- It takes a few listings, each bounded, and reads no object.
- Another level is named only if names of the layout were seen there.
- The URL that is shown has no secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice

from fetchers._store import FsspecStore
from remote_fetch.fetch.spi import LevelFinder
from remote_fetch.hosts import shown_url
from remote_fetch.model import Survey

__all__ = ["surveyed"]

_FOLDERS = 32
"""How many folders are searched for the folder that the URL should name."""
_SHOWN_NAMES = 4
_URL, _LAYOUT = "remote.storage.url", "remote.storage.layout"
_NOT_FOLDERS = {
    "missing": "it does not exist",
    "file": "it is a file, and a directory is needed",
    "empty": "it is empty",
    "bare": "no object is stored below it",
}


def surveyed(store: FsspecStore, url: str, base: str, layout: str, layouts: Mapping[str, object]) -> Survey:
    """Describe what `store` holds, from the names below its root.

    - `url` is the configured URL. `base` is the URL from which a better one is derived. Both may hold secrets.
    - `layout` is the name of the configured layout. `layouts` has all layouts by name.

    Raises the errors of `FsspecStore.list`.
    """
    place = shown_url(url) if url in (base, f"{base}/") else f"{shown_url(url)} ({shown_url(base)})"
    kind = store.kind()
    if kind in _NOT_FOLDERS:
        return Survey(place, _NOT_FOLDERS[kind])
    chosen = layouts[layout]
    if isinstance(chosen, LevelFinder):
        levels = chosen.levels_below(store)
        if levels == 0:
            return Survey(place)
        if levels is not None:
            above = base.rstrip("/").rsplit("/", levels)[0]
            return _better(place, f"it is a folder inside of a tier of the layout {layout!r}", _URL, above)
        for folder in islice(_below(store), _FOLDERS):
            if chosen.levels_below(store, folder) == 0:
                found = f"what the layout {layout!r} writes begins in its folder {folder!r}"
                return _better(place, found, _URL, f"{base.rstrip('/')}/{folder}")
    seen = _of_another(store, layout, layouts)
    if seen is not None:
        return _better(place, seen[1], _LAYOUT, seen[0])
    return Survey(place, f"it holds {_names(store)}, and nothing that the layout {layout!r} writes")


def _of_another(store: FsspecStore, layout: str, layouts: Mapping[str, object]) -> tuple[str, str] | None:
    """Another layout whose names are in the store, and where. None if there is none."""
    others = {name: other for name, other in layouts.items() if name != layout and isinstance(other, LevelFinder)}
    for name, other in others.items():
        if other.levels_below(store) == 0:
            return name, f"its names are those of the layout {name!r}"
    for folder in islice(_below(store), _FOLDERS):
        for name, other in others.items():
            if other.levels_below(store, folder) == 0:
                return name, f"what the layout {name!r} writes begins in its folder {folder!r}"
    return None


def _better(place: str, found: str, key: str, value: str) -> Survey:
    return Survey(place, found, f"Set {key}={shown_url(value) if key == _URL else value}", (key, value))


def _below(store: FsspecStore) -> Iterator[str]:
    """The folders one level below the root, then those of the next level."""
    first = list(islice(store.folders(), _FOLDERS))
    return chain(first, (f"{folder}/{name}" for folder in first for name in islice(store.folders(folder), _FOLDERS)))


def _names(store: FsspecStore) -> str:
    names = sorted(islice(store.names(), _FOLDERS))
    return ", ".join(repr(name[:80]) for name in names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")

"""Plug-ins by name: the entry points of this package first, then those of every installed distribution.

Rules of the file:

- This package's own entry points come first. A search through all installed distributions reads a file of each of them,
  and can take longer than a small read.
- This module finds the fetcher for the scheme of a URL, for the registry and for the fetchers that open further roots.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points

__all__ = [
    "FETCHERS_GROUP",
    "LAYOUTS_GROUP",
    "NOT_INSTALLED",
    "entry_point",
    "fetcher_of",
    "installed_names",
    "is_scheme",
    "kind_of",
    "own_entry_point",
    "scheme_of",
]

FETCHERS_GROUP = "remote_fetch.fetchers"
"""The entry-point group in which fetchers announce their short names."""
LAYOUTS_GROUP = "remote_fetch.layouts"
"""The entry-point group in which layouts announce their names."""
NOT_INSTALLED = (
    "remote-fetch is not installed here: its files alone, as in a zip of --py-files, lack the names of its fetchers "
    "and layouts. Install the wheel, or bring an environment that has it"
)
"""The hint if a group has no name at all."""

_SCHEMES = {
    "": "local",
    "file": "local",
    "s3a": "s3",
    "gs": "gcs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
    "wasb": "azure",
    "wasbs": "azure",
    "https": "http",
}
"""Schemes whose fetcher has another name. Your own fetcher for such a scheme needs the class key."""
_ANY = "fsspec"
"""The fetcher for the schemes of fsspec that have no fetcher of their own."""


def own_entry_point(group: str, name: str) -> EntryPoint | None:
    """This package's own entry point of that name, or None if this package has none."""
    try:
        entries = distribution("remote-fetch").entry_points
    except PackageNotFoundError:  # the package is imported from its sources, without an installation
        return None
    return next((entry for entry in entries if entry.group == group and entry.name == name), None)


def entry_point(group: str, name: str) -> EntryPoint | None:
    """The entry point of that name: this package's own, else that of another distribution. None if there is none."""
    own = own_entry_point(group, name)
    return {entry.name: entry for entry in entry_points(group=group)}.get(name) if own is None else own


def installed_names(group: str) -> list[str]:
    """The names that all installed distributions announce in a group, sorted."""
    return sorted({entry.name for entry in entry_points(group=group)})


def scheme_of(url: str) -> str:
    """The scheme of a URL in lower case, empty for the path of a directory."""
    return url.partition("://")[0].lower() if "://" in url else ""


def fetcher_of(scheme: str) -> str:
    """The short name of the fetcher for the URLs of a scheme. A fetcher of that name may not be installed."""
    name = _SCHEMES.get(scheme, scheme)
    if own_entry_point(FETCHERS_GROUP, name) is not None:
        return name
    installed = installed_names(FETCHERS_GROUP)
    return _ANY if name not in installed and _ANY in installed and _fsspec_knows(scheme) else name


def kind_of(url: str) -> tuple[str, str]:
    """Two URLs of one kind take the same options. Of the stores that fsspec alone knows each scheme is a kind."""
    scheme = scheme_of(url)
    name = fetcher_of(scheme)
    return name, scheme if name == _ANY else ""


def is_scheme(name: str) -> bool:
    """Whether a fetcher reads URLs of this scheme."""
    return name in _SCHEMES or name in installed_names(FETCHERS_GROUP) or _fsspec_knows(name)


def _fsspec_knows(scheme: str) -> bool:
    import fsspec  # noqa: PLC0415 - slow to load, and seldom asked

    return scheme in fsspec.available_protocols() or scheme in fsspec.registry

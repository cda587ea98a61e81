"""The formats of a target, by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError
from remote_fetch.hosts import check_password
from remote_fetch.tables.table import Table

__all__ = ["TABLES", "check_format", "check_options", "checked_target", "open_table"]

TABLES = ("iceberg", "delta")
"""The formats whose targets are tables. `parquet` is a directory of files."""
_URL_OF_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""A Path made of a URL begins so: it makes one slash of two."""


def check_format(name: str) -> None:
    """Raise ConfigError for an unknown format."""
    if name not in ("parquet", *TABLES):
        raise ConfigError(f"format={name!r}: choose 'parquet', 'iceberg' or 'delta'", key="format")


def check_options(options: object) -> None:
    """Raise ConfigError, which shows no value, unless these are the `to_options` of a target, or None."""
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"to_options is a dict of names and values, not a {type(options).__name__}", key="to_options")


def checked_target(to: object, format_name: str) -> str:
    """The target that a user names by text or a Path, as text. A directory has its absolute path.

    Raises ConfigError for anything else.
    """
    name = os.fspath(to) if isinstance(to, os.PathLike) else to
    if not isinstance(name, str) or not name:
        raise ConfigError(f"to={to!r}: name a directory, a URL or a table", key="to")
    if name is not to and _URL_OF_PATH.match(name):
        raise ConfigError(f"to={to!r}: a Path holds no URL; give it as text", key="to")
    if name is to and "://" not in name and format_name != "iceberg":
        check_password(name, "to")
    return name if "://" in name or format_name in TABLES else os.path.abspath(name)


def open_table(name: str, to: str, options: Mapping[str, Any] | None) -> Table:
    """The table of a format. Its library is loaded here. Raises MissingExtra, ConfigError."""
    if name == "delta":
        from remote_fetch.tables.delta import DeltaTarget  # noqa: PLC0415 - loaded for those who name it

        return DeltaTarget(to, options)
    from remote_fetch.tables.iceberg import IcebergTarget  # noqa: PLC0415 - as above

    return IcebergTarget(to, options)

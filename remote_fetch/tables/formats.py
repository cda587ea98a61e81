"""The formats of a target, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remote_fetch.errors import ConfigError
from remote_fetch.tables.table import Table

__all__ = ["TABLES", "check_format", "open_table"]

TABLES = ("iceberg", "delta")
"""The formats whose targets are tables. `parquet` is a directory of files."""


def check_format(name: str) -> None:
    """Raise ConfigError for an unknown format."""
    if name not in ("parquet", *TABLES):
        raise ConfigError(f"format={name!r}: choose 'parquet', 'iceberg' or 'delta'", key="format")


def open_table(name: str, to: str, options: Mapping[str, Any] | None) -> Table:
    """The table of a format. Its library is loaded here. Raises MissingExtra, ConfigError."""
    if name == "delta":
        from remote_fetch.tables.delta import DeltaTarget  # noqa: PLC0415 - loaded for those who name it

        return DeltaTarget(to, options)
    from remote_fetch.tables.iceberg import IcebergTarget  # noqa: PLC0415 - as above

    return IcebergTarget(to, options)

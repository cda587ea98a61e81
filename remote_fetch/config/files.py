"""Reads a file that the configuration names: whole, or not at all."""

from __future__ import annotations

from pathlib import Path

from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault

__all__ = ["read_file"]


def read_file(name: str | Path, *, key: str, max_bytes: int) -> bytes:
    """The content of the file that `key` names. Raises ConfigError if it cannot be read or is too large."""
    try:
        with open(name, "rb") as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ConfigError(f"{key}={name}: {file_fault(error)}", key=key) from error
    if len(data) > max_bytes:
        raise ConfigError(f"{key}={name}: larger than {max_bytes} bytes", key=key)
    return data

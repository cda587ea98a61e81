"""The connections of fsspec's SFTP end with their filesystem. paramiko is not loaded here."""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["close_ssh_with"]


def close_ssh_with(filesystem: Any) -> None:
    """Close the connection of fsspec's SFTP when nothing refers to the filesystem, which must have it for itself.

    A client of paramiko that nothing refers to keeps its connection and its thread. A client that a filesystem takes
    from another one, as a cache does, is not its own.
    """
    client = vars(filesystem).get("client")
    if client is not None and type(client).__module__.startswith("paramiko."):
        weakref.finalize(filesystem, client.close).atexit = False

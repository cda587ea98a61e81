"""Gives ports of the loopback interface to the servers of tests. No two processes get the same port.

Rules of the file:

- A port stays with its process until the process ends, also during a restart of the server.
- A lock on one byte of a file stands for each port. The system releases it at any end of the process.
- The ports lie below those that systems give to outgoing connections. So no client takes one before the server listens.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import secrets
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Ports", "free_port"]

_LOCK_FILE = Path(tempfile.gettempdir()) / f"remote-fetch-ports-{getpass.getuser()}.lock"
_NUMBERS = range(20_000, 32_000)
"""Linux gives outgoing connections 32768 and up, other systems 49152 and up."""


class Ports:
    """The ports that this process has taken, out of `numbers`. A forked child has its own set."""

    def __init__(self, lock_file: Path, numbers: Sequence[int]) -> None:
        self._lock_file = lock_file
        self._numbers = numbers
        self._lock: int | None = None
        self._taken: set[int] = set()

    def take(self) -> int:
        """A port that no other process has taken and no socket is bound to. Raises RuntimeError if there is none."""
        if self._lock is None:
            self._lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        first = secrets.randbelow(len(self._numbers))
        for port in (*self._numbers[first:], *self._numbers[:first]):
            if port not in self._taken and _is_locked_for_us(self._lock, port) and _is_unbound(port):
                self._taken.add(port)
                return port
        raise RuntimeError(f"no port is free between {self._numbers[0]} and {self._numbers[-1]}")


def _is_locked_for_us(lock: int, port: int) -> bool:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_unbound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_PORTS = Ports(_LOCK_FILE, _NUMBERS)


def free_port() -> int:
    """A port of the loopback interface that is this process's own until it ends."""
    return _PORTS.take()

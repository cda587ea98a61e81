"""A store's server as a process on loopback, and what tests ask of it: put an object, configure a reader.

Rules of the file:

- Every port belongs to one server.
- A process is always stopped, by its id. If it does not start, the error contains its log.
- Objects are written with the store's own SDK or into its directory, never through a fetcher.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.patience import UNHURRIED
from tests.rig.ports import free_port

__all__ = ["PATIENCE", "Server", "StoreServer", "configs_of", "free_port", "put_tree", "serving"]

_START_TIMEOUT_S = 240
_STOP_TIMEOUT_S = 20
PATIENCE = {name: str(limit_ms) for name, limit_ms in UNHURRIED.items()}
"""The limits of patience.py for fetchers, which take text, and for child processes."""
_LOG_TAIL_CHARS = 4000
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
"""Linux's way to end a process whose parent was killed and could not stop it."""


@dataclass
class Server:
    """A process that listens on `port` and writes what it says to `log_file`."""

    command: Sequence[str]
    log_file: Path
    port: int
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    scheme: str = "http"
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended without `stop` or `kill`."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start it, and wait until it takes connections. Raises RuntimeError with the end of its log."""
        prefix = _DIES_WITH_US if shutil.which(_DIES_WITH_US[0]) else ()
        with open(self.log_file, "ab") as log:
            self._process = subprocess.Popen(
                [*prefix, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_file.parent,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{self.command[0]} did not start; the end of its log:\n{self.log_tail()}")

    def stop(self) -> None:
        """Stop it: politely, and then not."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def log(self) -> str:
        """All it has said."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self) -> str:
        """The end of what it has said."""
        return self.log()[-_LOG_TAIL_CHARS:]


class StoreServer(Protocol):
    """The methods that every store's server offers to tests."""

    @property
    def server(self) -> Server:
        """Its process."""

    def put(self, name: str, data: bytes) -> None:
        """Write one object below the tier's root."""

    def configs(self, **options: str) -> dict[str, str]:
        """The configuration of a reader of the tier; `options` are `remote.storage.options.*`."""


def configs_of(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a patient reader of `url` whose filesystem is made with these options."""
    named = {f"remote.storage.options.{name}": value for name, value in options.items()}
    return {"remote.storage.url": url, **PATIENCE, **named}


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    """The server started, and stopped at the end."""
    server.start()
    try:
        yield server
    except Exception as error:
        error.add_note(f"the end of {server.log_file}:\n{server.log_tail()}")
        raise
    finally:
        server.stop()


def put_tree(store: StoreServer, directory: Path) -> None:
    """A directory's files as objects, under their paths in it."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(directory).as_posix(), path.read_bytes())

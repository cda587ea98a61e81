"""Starts, pauses and stops one Kafka process.

Rules of the file:

- Every port is on loopback and belongs to the node.
- The process is always stopped, by its id.
- If it does not start, the error contains its log.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from remote_fetch.model import Uuid
from tests.rig.artifacts import class_archive, formatted_folder, jars
from tests.rig.ports import free_port

__all__ = ["QUICK_COMPILER", "Node", "new_id"]

_STARTED = "Kafka Server started"
_START_TIMEOUT_S = 240
_STOP_TIMEOUT_S = 30
_LOG_TAIL_CHARS = 4000
_LOG_ERROR_LINES = 10
_IDENTITY = "meta.properties"
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""JVM options for short commands, for which optimisation does not pay: formatting takes half of the time."""


def new_id() -> str:
    """A random id for a cluster or a folder. Kafka's tool takes none that begins with a hyphen."""
    return str(Uuid(bytes(range(1, 9)) + os.urandom(8)))


@dataclass
class Node:
    """A Kafka process in `folder`. `properties` are its server.properties; `heap_mb` bounds its memory.

    With `full_compiler` the JVM optimises as in production, for measurements. Without it the broker starts sooner.
    """

    version: str
    folder: Path
    properties: Mapping[str, str]
    heap_mb: int = 512
    full_compiler: bool = False
    java_options: tuple[str, ...] = ()
    jmx_port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _log_from: int = field(default=0, repr=False)

    @property
    def log_file(self) -> Path:
        """The output of the process, over all its restarts."""
        return self.folder / "broker.log"

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process. Raises RuntimeError if it was not started."""
        if self._process is None:
            raise RuntimeError(f"{self.folder.name} was not started")
        return self._process.pid

    def format(self, cluster_id: str) -> None:
        """Prepare the log folder, once. Kafka's tool does it for the first node of a version with these roles."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        data = Path(self.properties["log.dirs"])
        formatted = formatted_folder(self.version, self.properties["process.roles"])
        if formatted.exists():
            shutil.copytree(formatted, data)
            text = (data / _IDENTITY).read_text()
            ids = {"cluster.id": cluster_id, "node.id": self.properties["node.id"], "directory.id": new_id()}
            for name, own in ids.items():
                text = re.sub(f"^{name}=.*", f"{name}={own}", text, flags=re.MULTILINE)
            (data / _IDENTITY).write_text(text)
            return
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
        command = [*self.java(64), QUICK_COMPILER, *tool]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"cannot format {self.folder}: {done.stdout}{done.stderr}")
        partial = formatted.with_name(f"{formatted.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed, and had this id
        shutil.copytree(data, partial)
        try:
            partial.rename(formatted)
        except OSError:  # another process was faster
            shutil.rmtree(partial)

    def start(self) -> None:
        """Start the process; `wait_started` tells when it is up."""
        jmx = "-Dcom.sun.management.jmxremote"
        options = [
            f"{jmx}.port={self.jmx_port}",
            f"{jmx}.rmi.port={self.jmx_port}",
            f"{jmx}.host=127.0.0.1",
            f"{jmx}.authenticate=false",
            f"{jmx}.ssl=false",
            f"-Djava.io.tmpdir={self.folder}",  # a broker that is killed leaves its unpacked libraries there
            "-Djava.rmi.server.hostname=127.0.0.1",
            f"-Dlog4j.configuration={(Path(__file__).parent / 'log4j.properties').as_uri()}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        if not self.full_compiler:
            options.append(QUICK_COMPILER)
        command = [
            *self.java(self.heap_mb),
            *options,
            *self.java_options,
            "kafka.Kafka",
            str(self.folder / "server.properties"),
        ]
        with open(self.log_file, "ab") as log:
            log.write(b"== start\n")
            log.flush()
            self._log_from = log.tell()
            # A session of its own: Ctrl-C in a terminal is for us, and we stop the broker.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,  # LocalTieredStorage leaves a folder where it is started
                start_new_session=True,
            )

    def java(self, heap_mb: int) -> list[str]:
        """The beginning of a command that runs a class of this Kafka version."""
        archive = class_archive(self.version)
        classes = [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []
        return ["java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", *classes, "-cp", f"{jars(self.version)}/*"]

    def wait_started(self) -> None:
        """Wait until the broker says that it is up. Raises RuntimeError with the end of its log."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self.is_running:
            with open(self.log_file, "rb") as log:
                log.seek(self._log_from)
                if _STARTED.encode() in log.read():
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the broker did not start; the end of {self.log_file}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """Errors in the log, and its last lines. If a broker gives up, its last lines do not tell the cause."""
        if not self.log_file.exists():
            return ""
        text = self.log_file.read_text(errors="replace")
        before, end = text[:-_LOG_TAIL_CHARS], text[-_LOG_TAIL_CHARS:]
        errors = [line for line in before.splitlines() if " ERROR " in line or "Exception" in line]
        return "\n".join([*errors[-_LOG_ERROR_LINES:], end])

    def pause(self) -> None:
        """Suspend the process, and wait until none of its threads runs. Its connections stay open.

        `stop(kill=True)` can end a suspended process.
        """
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a suspended process go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the process by SIGTERM, or at once by SIGKILL."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait(_STOP_TIMEOUT_S)

"""An archive of the classes that a broker loads: with it the next ones start with two thirds of the processor time.

Rules of the file:

- One process makes the archive of a version, once. Other processes start their brokers without it until it is there.
- A JVM that an archive does not fit passes over it.
"""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

from tests.rig.artifacts import class_archive
from tests.rig.rig import single

__all__ = ["make_class_archive"]


def make_class_archive(version: str) -> None:
    """Start a broker of that version and stop it again, if there is no archive and no other process makes it."""
    archive = class_archive(version)
    if archive.exists():
        return
    archive.parent.mkdir(exist_ok=True)
    with open(archive.with_suffix(".jsa.lock"), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        partial = archive.with_suffix(".partial")
        with tempfile.TemporaryDirectory() as folder:
            options = (f"-XX:ArchiveClassesAtExit={partial}",)
            with single(Path(folder), version, access_control=True, java_options=options) as rig:
                rig.wait_tier_ready()
                rig.nodes[1].stop()  # by SIGTERM: a JVM that is killed writes nothing
        if partial.exists():
            partial.rename(archive)

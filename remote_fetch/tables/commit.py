"""How the staged files of a job get to its target: one strategy for each kind of filesystem.

Rules of the file:

- A strategy moves files and knows nothing of jobs, tasks or records.
- A small file (`put`) is there as a whole or not at all.
- `publish` may stop anywhere. Called again with the same arguments, it passes over what is in place and finishes.
- The manifest comes last, so that a reader that waits for it sees all files.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from remote_fetch.deadline import Deadline
from remote_fetch.errors import ConfigError, RemoteFetchError, StorageDenied, StorageTimeout
from remote_fetch.failures.store_errors import answered_status
from remote_fetch.session.filesystems import is_object_store, protocols_of
from remote_fetch.session.parallel import all_at_once

__all__ = [
    "MANIFEST",
    "CommitStrategy",
    "LocalCommit",
    "MovingCommit",
    "ObjectStoreCommit",
    "Placement",
    "choose_commit",
    "is_local",
    "is_pattern",
    "size_bytes_of",
]

MANIFEST = "_manifest.json"
"""The name of the manifest in a target; readers of data files pass over names that begin with an underscore."""

_COPY_TIMEOUT_S, _COPY_PAUSE_S = 600.0, 0.5
"""How long a store may take to finish one copy, and the pause between two looks at it."""
_REFUSALS = frozenset({409, 412})
"""The statuses of a store that has another file of the name, or is being given one."""
_NOT_IMPLEMENTED = 501
_PATTERN = re.compile("[*?[]")
_LOCAL = frozenset({"file", "local"})


@dataclass(frozen=True, slots=True)
class Placement:
    """One staged file: its name in the filesystem, its path relative to the target, and its size."""

    source: str
    path: str
    size_bytes: int


class CommitStrategy(Protocol):
    """How files are written and put in place on one kind of filesystem. Names are full paths in that filesystem."""

    def prepare(self, name: str) -> None:
        """Make the directory in which a file of this name is about to be written."""

    def put(self, name: str, content: bytes) -> None:
        """Write a small file so that it is there as a whole or not at all."""

    def put_new(self, name: str, content: bytes, *, staging: str) -> None:
        """As `put`, but a file of this name stays as it is. `staging` is the directory of the job, for drafts.

        Of two processes that do this at once, the first one wins. Where the filesystem cannot do that, either may.
        """

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all that is in it. Raises the errors of the filesystem."""

    def publish(self, placements: Sequence[Placement], manifest: bytes, *, staging: str, target: str) -> None:
        """Put the staged files in place under `target`, and after them the manifest.

        `staging` is the directory of the job beside the target. Raises the filesystem's errors, and StorageTimeout if
        a store does not finish a copy.
        """


class ObjectStoreCommit:
    """For stores without directories and renaming: the store copies each file, and `clean_up` removes the sources."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    def prepare(self, name: str) -> None:
        """As `CommitStrategy.prepare`."""

    def put(self, name: str, content: bytes) -> None:
        """As `CommitStrategy.put`. A store shows an object when all of it has arrived."""
        self._fs.pipe_file(name, content)

    def put_new(self, name: str, content: bytes, *, staging: str) -> None:
        """As `CommitStrategy.put_new`. S3 has If-None-Match for that, GCS ifGenerationMatch. Azure knows both."""
        try:
            self._fs.pipe_file(name, content, mode="create")
        except (OSError, RemoteFetchError) as error:
            status = answered_status(error)
            if isinstance(error, FileExistsError) or status in _REFUSALS or size_bytes_of(self._fs, name) is not None:
                return
            # Some servers and filesystems do not know the condition. After a failure that passes, a file without it
            # could replace that of another process.
            if not (isinstance(error, (ConfigError, StorageDenied)) or status == _NOT_IMPLEMENTED):
                raise
            self.put(name, content)

    def remove(self, name: str) -> None:
        """As `CommitStrategy.remove`. Many at once, unless fsspec takes the name for a pattern: others may fit it."""
        if not is_pattern(name):
            self._fs.rm(name, recursive=True)
            return
        for found in self._fs.find(name):
            with suppress(FileNotFoundError):
                self._remove_file(found)

    def _remove_file(self, name: str) -> None:
        try:
            self._fs.rm_file(name)
        except NotImplementedError:  # adlfs before 2026.2 lacks it, and has an option of its own
            self._fs.rm(name, expand_path=False)

    def publish(self, placements: Sequence[Placement], manifest: bytes, *, staging: str, target: str) -> None:
        """As `CommitStrategy.publish`. All copies are begun before the first one is waited for."""
        all_at_once(lambda placement: self._place(placement, posixpath.join(target, placement.path)), placements)
        for placement in placements:
            self._wait_for(placement, posixpath.join(target, placement.path), staging)
        self.put(posixpath.join(target, MANIFEST), manifest)

    def _place(self, placement: Placement, name: str) -> None:
        if size_bytes_of(self._fs, name) != placement.size_bytes:
            self._fs.cp_file(placement.source, name)

    def _wait_for(self, placement: Placement, name: str, staging: str) -> None:
        """Wait until a copy is complete. Azure may return early, and shows an empty object until it is."""
        deadline = Deadline.after(_COPY_TIMEOUT_S)
        while size_bytes_of(self._fs, name) != placement.size_bytes:
            if deadline.is_over:
                raise StorageTimeout(
                    f"{placement.path} was not copied to {name} within {_COPY_TIMEOUT_S:.0f} s",
                    hint=f"The staged files are still in {staging}: run the same job again, and it finishes the commit",
                )
            time.sleep(_COPY_PAUSE_S)


class MovingCommit:
    """For filesystems with directories that are not a local disk: files are moved into the target one by one."""

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    def prepare(self, name: str) -> None:
        """As `CommitStrategy.prepare`."""
        self._fs.makedirs(posixpath.dirname(name), exist_ok=True)

    def put(self, name: str, content: bytes) -> None:
        """As `CommitStrategy.put`: a draft is written and renamed."""
        self._put(name, content, posixpath.dirname(name))

    def put_new(self, name: str, content: bytes, *, staging: str) -> None:
        """As `CommitStrategy.put_new`. Few filesystems can rename so that a file stays."""
        if size_bytes_of(self._fs, name) is None:
            self._put(name, content, staging)

    def remove(self, name: str) -> None:
        """As `CommitStrategy.remove`. FTP's filesystem takes a missing file, and one with `recursive`, for a folder."""
        self._fs.rm(name, recursive=self._fs.info(name)["type"] == "directory")

    def publish(self, placements: Sequence[Placement], manifest: bytes, *, staging: str, target: str) -> None:
        """As `CommitStrategy.publish`."""
        for placement in placements:
            self._place(placement, posixpath.join(target, placement.path))
        # Nothing would remove a draft in the target.
        self._put(posixpath.join(target, MANIFEST), manifest, staging)

    def _put(self, name: str, content: bytes, drafts: str) -> None:
        """`drafts` is the directory of the draft."""
        self.prepare(name)
        draft = posixpath.join(drafts, f"{posixpath.basename(name)}.{uuid4().hex}")
        self._fs.pipe_file(draft, content)
        self._replace(draft, name)

    def _replace(self, draft: str, name: str) -> None:
        self._fs.mv(draft, name)

    def _place(self, placement: Placement, name: str) -> None:
        if size_bytes_of(self._fs, name) != placement.size_bytes:
            self.prepare(name)
            try:
                self._fs.mv(placement.source, name)
            except FileNotFoundError:  # another driver of the job may have moved it
                if size_bytes_of(self._fs, name) != placement.size_bytes:
                    raise


class LocalCommit(MovingCommit):
    """For a local or shared disk: files are moved into one directory, which one rename makes the target."""

    def publish(self, placements: Sequence[Placement], manifest: bytes, *, staging: str, target: str) -> None:
        """As `CommitStrategy.publish`. Readers see all of it at once."""
        ready = posixpath.join(staging, "ready")
        super().publish(placements, manifest, staging=staging, target=ready)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(ready, target)  # an empty directory may be at the target; rename replaces it

    def put_new(self, name: str, content: bytes, *, staging: str) -> None:
        """As `CommitStrategy.put_new`. A link to the draft is made unless there is a file of this name."""
        self.prepare(name)
        draft = f"{name}.{uuid4().hex}"
        self._fs.pipe_file(draft, content)
        try:
            os.link(draft, name)
        except FileExistsError:
            pass
        except OSError:  # a disk without hard links
            super().put_new(name, content, staging=staging)
        os.unlink(draft)

    def _replace(self, draft: str, name: str) -> None:
        os.replace(draft, name)


def choose_commit(filesystem: Any) -> CommitStrategy:
    """The strategy for an fsspec filesystem, by its protocols."""
    if is_object_store(filesystem):
        return ObjectStoreCommit(filesystem)
    return LocalCommit(filesystem) if is_local(filesystem) else MovingCommit(filesystem)


def is_local(filesystem: Any) -> bool:
    """Whether it is the filesystem of this machine, in which a directory can be renamed."""
    return bool(protocols_of(filesystem) & _LOCAL)


def is_pattern(name: str) -> bool:
    """Whether fsspec takes a name for a pattern when it removes and moves files. A local disk is an exception."""
    return _PATTERN.search(name) is not None


def size_bytes_of(filesystem: Any, name: str) -> int | None:
    """The size of a file; None if it is not there."""
    try:
        return int(filesystem.info(name)["size"])
    except FileNotFoundError:
        return None

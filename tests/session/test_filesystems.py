"""Filesystems for what is written."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from remote_fetch.errors import ConfigError, MissingExtra
from remote_fetch.session.filesystems import is_object_store, open_filesystem, protocols_of


def test_a_filesystem_and_its_path(tmp_path: Path) -> None:
    local, path = open_filesystem(str(tmp_path), {}, key="to")
    assert path == str(tmp_path)
    assert not is_object_store(local)
    assert "file" in protocols_of(local)
    memory, path = open_filesystem("memory://a/b", {}, key="to")
    assert (path, protocols_of(memory)) == ("/a/b", {"memory"})
    for url in ("s3://bucket/a", "S3://bucket/a"):
        store, path = open_filesystem(url, {"anon": True}, key="to")
        assert (is_object_store(store), path) == (True, "bucket/a")


def test_errors_name_the_key_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"to=nowhere://\.\.\.: "):
        open_filesystem("nowhere://a", {}, key="to")
    monkeypatch.setitem(sys.modules, "gcsfs.core", None)
    with pytest.raises(MissingExtra, match=r"remote-fetch\[gcs\]"):
        open_filesystem("gs://bucket/a", {}, key="to")


@pytest.mark.parametrize("scheme", ["az", "s3"])
def test_another_library_for_a_scheme_keeps_its_own_options(scheme: str) -> None:
    own = fsspec.get_filesystem_class(scheme)
    fsspec.register_implementation(scheme, MemoryFileSystem, clobber=True)
    try:
        filesystem, _ = open_filesystem(f"{scheme}://bucket/prefix", {"theirs": 1}, key="to")
    finally:
        fsspec.register_implementation(scheme, own, clobber=True)
    assert filesystem.storage_options == {"use_listings_cache": False, "theirs": 1}


def test_a_filesystem_of_ssh_hands_each_option_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refuses those that it does not know."""

    class Client(SimpleNamespace):
        __module__ = "paramiko.client"

    closed: list[str] = []

    class Strict(MemoryFileSystem):  # type: ignore[misc]
        def __init__(self, host: str) -> None:
            super().__init__()
            self.client = Client(close=lambda: closed.append("a connection"))

    monkeypatch.setitem(_registry, "sftp", Strict)
    filesystem, _ = open_filesystem("sftp://", {"host": "h", "skip_instance_cache": False}, key="to")
    assert not filesystem.dircache.use_listings_cache
    assert not closed
    del filesystem
    gc.collect()
    assert closed == ["a connection"]
    with pytest.raises(ConfigError, match="TypeError"):
        open_filesystem("sftp://", {"host": "h", "port": 1}, key="to")

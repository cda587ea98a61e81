"""Filesystems for what is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from remote_fetch.errors import ConfigError, MissingExtra
from remote_fetch.session.filesystems import is_object_store, open_filesystem, protocols_of, scheme_of


def test_schemes() -> None:
    assert [scheme_of(url) for url in ("/a", "a b", "file:///a", "s3://b/c")] == ["file", "file", "file", "s3"]


def test_a_filesystem_and_its_path(tmp_path: Path) -> None:
    local, path = open_filesystem(str(tmp_path), {}, key="to")
    assert path == str(tmp_path)
    assert not is_object_store(local)
    assert "file" in protocols_of(local)
    memory, path = open_filesystem("memory://a/b", {}, key="to")
    assert (path, protocols_of(memory)) == ("/a/b", {"memory"})
    assert is_object_store(open_filesystem("s3://bucket/a", {"anon": True}, key="to")[0])


def test_errors_name_the_key_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"to=nowhere://\.\.\.: "):
        open_filesystem("nowhere://a", {}, key="to")
    monkeypatch.setitem(sys.modules, "gcsfs.core", None)
    with pytest.raises(MissingExtra, match=r"remote-fetch\[gcs\]"):
        open_filesystem("gs://bucket/a", {}, key="to")

"""A file that the configuration names is read whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote_fetch.config.files import read_file
from remote_fetch.errors import ConfigError


def test_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert read_file(tmp_path / "f", key="some.file", max_bytes=5) == b"12345"


def test_a_file_that_is_too_large_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with pytest.raises(ConfigError, match=r"some\.file=.*/f: larger than 4 bytes") as failed:
        read_file(tmp_path / "f", key="some.file", max_bytes=4)
    assert failed.value.key == "some.file"


@pytest.mark.parametrize(("name", "fault"), [("/no/such/file", "No such file"), ("a\0b", "null"), ("/", "directory")])
def test_a_name_that_cannot_be_read(name: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read_file(name, key="some.file", max_bytes=4)

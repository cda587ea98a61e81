"""How the servers' programs are made: once, whole or not at all, and with a reason where they cannot be.

Rules of the file:

- No program of a server is built here. Scripts of the test take the places of `go` and `npm`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.at_once import at_once
from tests.stores import artifacts
from tests.stores.artifacts import BuildError, MissingTool, azurite, fake_gcs_server, versitygw


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(artifacts, "_FOLDER", tmp_path / "rig")
    return tmp_path / "rig"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of programs there is, beside the system's own."""
    found = tmp_path / "tools"
    found.mkdir()
    monkeypatch.setenv("PATH", str(found))
    return found


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
    path.chmod(0o755)


def test_a_tool_that_is_missing(tools: Path, folder: Path) -> None:
    for made in (versitygw, fake_gcs_server):
        with pytest.raises(MissingTool, match="need go,"):
            made()
    with pytest.raises(MissingTool, match="need node,"):
        azurite()
    script(tools / "node", "true")
    with pytest.raises(MissingTool, match="need npm,"):
        azurite()
    assert not folder.exists()


def test_a_program_is_built_once(tools: Path, folder: Path) -> None:
    script(tools / "go", f'for last; do :; done; echo "$last" >> {folder}/asked; echo built > "$GOBIN/versitygw"')
    assert at_once([versitygw] * 4) == [folder / f"versitygw-{artifacts.VERSITYGW}" / "versitygw"] * 4
    assert versitygw().read_text() == "built\n"
    assert (folder / "asked").read_text().splitlines() == [
        f"github.com/versity/versitygw/cmd/versitygw@{artifacts.VERSITYGW}"
    ]


def test_a_build_that_fails(tools: Path, folder: Path) -> None:
    """Is an error with its output, and leaves nothing that looks like a program."""
    script(tools / "go", 'echo half > "$GOBIN/fake-gcs-server"; echo "no such module" >&2; exit 1')
    with pytest.raises(BuildError, match="no such module"):
        fake_gcs_server()
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []

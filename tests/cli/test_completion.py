"""The scripts of completion. A real bash completes with its script."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_all_commands_and_options(run: Run, shell: str) -> None:
    pytest.importorskip("shtab")
    outcome = run("completion", shell)
    assert (outcome.code, outcome.stderr) == (0, "")
    script = outcome.stdout.decode("utf-8")
    for word in ("remote-fetch", "restore", "audit", "stale-after", "isolation"):
        assert word in script


def test_bash_completes(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    (tmp_path / "script").write_bytes(run("completion", "bash").stdout)

    def completed(*words: str) -> set[str]:
        line = f"source {tmp_path}/script; COMP_WORDS=({' '.join(words)!s}); COMP_CWORD={len(words) - 1}"
        ask = (
            f"{line}; $(complete -p remote-fetch | sed 's/.* -F \\([^ ]*\\).*/\\1/'); printf '%s\\n' ${{COMPREPLY[@]}}"
        )
        outcome = subprocess.run([bash, "-c", ask], cwd=tmp_path, capture_output=True, check=True, text=True)
        return set(outcome.stdout.split())

    assert completed("remote-fetch", "re") == {"restore", "replay"}
    assert "--stale-after" in completed("remote-fetch", "audit", "--st")
    assert completed("remote-fetch", "audit", "--color", "a") >= {"auto", "always"}
    for command in (("dump",), ("ls", "--url"), ("offsets",), ("export", "--to"), ("demo", "--copy"), ("ls", "-F")):
        assert completed("remote-fetch", *command, "scr") == {"script"}, command


def test_a_missing_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "shtab", None)
    outcome = run("completion", "bash")
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert 'pip install "remote-fetch[cli]"' in outcome.stderr
    assert run("completion", "tcsh").code == 2

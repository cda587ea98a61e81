"""The container file, as text: its paths and stages exist, its versions agree, and its health check works.

Rules of the file:

- No engine builds an image here. The checks are those that a build would fail at first.
- The health check is the image's own command, run against a server on loopback.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from remote_fetch.cli import main
from tests.rig.certificates import make_certificates
from tests.service.process import running

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "container"
TEXT = (FOLDER / "Containerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "docs" / "howto" / "run-in-a-container.md").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str, str]]:
    """Stage, instruction and arguments of each instruction. The stage before the first FROM has no name."""
    lines = [line for line in TEXT.splitlines() if not line.lstrip().startswith("#")]
    found, stage = [], ""
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            if name == "FROM":
                stage = rest.split(" AS ")[1]
            found.append((stage, name, " ".join(rest.split())))
    return found


def arguments(stage: str, instruction: str) -> list[str]:
    return [rest for where, name, rest in instructions() if (where, name) == (stage, instruction)]


def test_every_path_that_is_copied_exists_and_is_in_the_context() -> None:
    allowed = {line[1:] for line in (FOLDER / "Containerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = set()
    stages: list[str] = []
    for stage, name, rest in instructions():
        if name == "FROM":
            stages.append(stage)
        if name == "COPY":
            *sources, _ = shlex.split(rest)
            if sources[0].startswith("--from="):
                assert sources[0].removeprefix("--from=") in stages[:-1], rest
            else:
                copied |= set(sources)
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {source.split("/")[0] for source in copied} == allowed


def test_what_is_copied_is_what_the_build_reads() -> None:
    files = [PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "remote_fetch", "fetchers"]
    copied = " ".join(arguments("wheel", "COPY")).split()
    assert [name for name in files if name not in copied] == []


def test_every_package_is_locked_by_hash() -> None:
    steps = [(stage, step) for stage, name, rest in instructions() if name == "RUN" for step in rest.split("&&")]
    installs = [(stage, step) for stage, step in steps if re.search(r"\b(install|wheel|download)\b.* ", step)]
    by_pip = [step for _, step in installs if "pip" in step.split(" install")[0].split(" wheel")[0]]
    assert len(by_pip) == 4
    locked = [step for step in by_pip if "--require-hashes" in step and "--requirement" in step]
    assert len(locked) == 2
    assert all("--no-index" in step for step in by_pip if step not in locked)
    assert {stage for stage, step in installs if "apt-get" in step} == {"wheel"}


def test_the_images_run_without_root_and_without_a_shell() -> None:
    assert arguments("base", "USER") == ["10001"]
    for stage in ("serve", "cli"):
        assert arguments(stage, "FROM") == [f"base AS {stage}"]
        assert arguments(stage, "USER") == []
        (entry,), (command,) = arguments(stage, "ENTRYPOINT"), arguments(stage, "CMD")
        assert json.loads(entry)[0] == "remote-fetch"
        assert isinstance(json.loads(command), list)


def test_versions_agree_with_the_project() -> None:
    (python,), (rust,) = (re.findall(rf"^ARG {name}=(\S+)$", TEXT, re.MULTILINE) for name in ("PYTHON", "RUST"))
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    assert f"--default-toolchain {rust}" in workflow


def test_the_page_names_the_extras_of_the_image() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.findall(r"^CONTAINER_EXTRAS := (.*)$", makefile, re.MULTILINE)[0].split()
    assert set(extras) <= PROJECT["optional-dependencies"].keys()
    (sentence,) = re.findall(r"The images have the extras (.*?)\.\n", PAGE, re.DOTALL)
    assert re.findall(r"`([\w-]+)`", sentence) == extras


def test_the_service_takes_the_options_of_the_image(capsys: pytest.CaptureFixture[str]) -> None:
    (entry,), (command,) = arguments("serve", "ENTRYPOINT"), arguments("serve", "CMD")
    words = [*json.loads(entry)[1:], *json.loads(command)]
    assert main(words) == 1  # the files are not there: the options were understood
    assert "/run/secrets/service.properties" in capsys.readouterr().err


@pytest.mark.slow
def test_the_health_check(tmp_path: Path) -> None:
    (check,) = arguments("serve", "HEALTHCHECK")
    _, *command = json.loads(check[check.index("CMD ") + 4 :])
    made = make_certificates(tmp_path / "tls")

    def code(url: str) -> int:
        done = subprocess.run(
            [sys.executable, *command],
            env=os.environ | {"HEALTH_URL": url},
            capture_output=True,
            timeout=300,
            check=False,
        )
        return done.returncode

    files = ("--tls-cert", str(made.certificate), "--tls-key", str(made.key))
    with running("--segments", "1", *files, log=tmp_path / "log") as (_, url):
        assert url.startswith("https://")
        assert code(f"{url}/healthz") == 0
        assert code(f"{url}/nothing") == 1
    assert code(f"{url}/healthz") == 1
    (path,) = re.findall(r"^ENV HEALTH_URL=https://127\.0\.0\.1:8443(\S+)$", TEXT, re.MULTILINE)
    assert path == "/healthz"

"""The project as a whole: its house rules, its lock files and what the texts promise.

Rules of the file:

- No test here imports the product.
- A test breaks each house rule, and shows that the check notices it.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tools import house_rules, module_list

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = tuple(f"requirements/{name}.lock" for name in ("runtime", "dev", "build", "container", "installer"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

MODULE = '"""A module.\n\nRules of the file: none.\n"""\n'
OWNER = MODULE + "class View:\n    def __init__(self):\n        self.kept = 0\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small project that keeps every rule."""
    packages = ("remote_fetch/plan", "remote_fetch/consumer", "fetchers", "tools", "tests", "docs", "examples")
    for directory in packages:
        (tmp_path / directory).mkdir(parents=True)
    write(tmp_path, "remote_fetch/plan/ranges.py", MODULE)
    write(tmp_path, "docs/map.md", "Ranges: `remote_fetch/plan/ranges.py`\n")
    write(tmp_path, module_list.PAGE, module_list.listing(tmp_path))
    write(tmp_path, "Makefile", "test: check\n\ncheck:\n\nmodules:\n")
    write(tmp_path, "README.md", "Run `make test`.\n")
    assert house_rules.breaches(tmp_path) == []
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).write_text(text, encoding="utf-8")


def messages(root: Path) -> list[str]:
    return [str(breach) for breach in house_rules.breaches(root)]


@pytest.mark.scheduled  # `make check` does the same with each change
def test_this_project_keeps_the_house_rules() -> None:
    assert messages(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        pytest.param("remote_fetch/plan/ranges.py", MODULE + "#\n" * 397, "401 lines", id="long module"),
        pytest.param(
            "remote_fetch/plan/ranges.py", MODULE + "def f():\n" + " 0\n" * 60, "f has 61 lines", id="long function"
        ),
        pytest.param("remote_fetch/plan/ranges.py", "x = 1\n", "no docstring", id="no docstring"),
        pytest.param("tests/test_a.py", "x = 1\n", "no docstring", id="no docstring in a test"),
        pytest.param("remote_fetch/plan/ranges.py", '"""A."""\n' + "#\n" * 60, "Rules of the file", id="no rules"),
        pytest.param("remote_fetch/plan/ranges.py", MODULE + "print(1)\n", "print() in a pure", id="impure"),
        pytest.param("tools/a.py", MODULE + '"""What is read."""\n', "'What' in a docstring", id="free relative"),
        pytest.param(
            "tests/test_a.py", '"""A\nfile.\n\nIt is read\nanew."""\n', "'anew' in a docstring", id="old word"
        ),
        pytest.param(
            "examples/a.py", '"""A last one, where there is one."""\n', "', where there is'", id="where for if"
        ),
        pytest.param("remote_fetch/consumer/a.py", OWNER + "view.kept = 1\n", "assigns view.kept", id="foreign field"),
        pytest.param("fetchers/a.py", MODULE + "fs._s3.close()\n", "private name _s3", id="borrowed attribute"),
        pytest.param("fetchers/a.py", MODULE + "self.fs._s3\n", "private name _s3", id="borrowed by a field"),
        pytest.param("fetchers/a.py", MODULE + "getattr(fs, '_s3')\n", "private name _s3", id="borrowed by getattr"),
        pytest.param("fetchers/a.py", MODULE + "from s3fs import _s3\n", "private name _s3", id="borrowed by import"),
        pytest.param("tools/a.py", MODULE + "# " + "/wor" + "k/x\n", "outside the project", id="stray path"),
        pytest.param("Makefile", "check:\n\tcat .." + "/shared/x\n", "outside the project", id="stray relative path"),
        pytest.param("README.md", "Run `make bricks`.\n", "no such target", id="unknown target"),
        pytest.param("README.md", "Run `make test-bricks`.\n", "no such target", id="unknown target of two words"),
        pytest.param("README.md", "```\nmake bricks  # x\n```\n", "no such target", id="unknown target in a block"),
        pytest.param("fetchers/s3.py", MODULE, "docs/modules.md:1: out of date", id="new module"),
        pytest.param("docs/map.md", "See `remote_fetch/gone.py`.\n", "does not exist", id="mapped module that is gone"),
    ],
)
def test_a_breach_is_found(root: Path, name: str, text: str, message: str) -> None:
    write(root, name, text)
    assert [found for found in messages(root) if message in found]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("remote_fetch/plan/ranges.py", MODULE + "#\n" * 396, id="400 lines"),
        pytest.param("remote_fetch/plan/ranges.py", MODULE + "def f():\n" + " 0\n" * 59, id="60 lines"),
        pytest.param("remote_fetch/plan/ranges.py", '"""A."""\n' + "#\n" * 59, id="a small module is its own rule"),
        pytest.param("remote_fetch/plan/__init__.py", '"""A."""\n' + "#\n" * 99, id="a package needs no rules"),
        pytest.param("tests/test_a.py", '"""A."""\n' + "#\n" * 99, id="a test needs no rules"),
        pytest.param("fetchers/__init__.py", "", id="an empty module"),
        pytest.param("tools/a.py", MODULE + "print(open)\n", id="tools may print"),
        pytest.param("tools/a.py", MODULE + '"""What is read? All in `meanwhile`."""\n', id="a question and a name"),
        pytest.param("tools/a.py", MODULE + "x = 'What is read'  # anew\n", id="words outside a docstring"),
        pytest.param("remote_fetch/consumer/a.py", OWNER + "answer.offset = 1\n", id="field of a foreign class"),
        pytest.param("remote_fetch/plan/ranges.py", OWNER + "view.kept = 1\n", id="package without owned fields"),
        pytest.param("README.md", "https://example.org/" + "work/x, a/" + "work/b, share\n", id="ordinary paths"),
    ],
)
def test_no_breach_is_invented(root: Path, name: str, text: str) -> None:
    write(root, name, text)
    assert [found for found in messages(root) if "docs/modules.md" not in found] == []


def test_the_pure_places_are_those_of_the_import_contract() -> None:
    """The contract cannot see a builtin, and the rule sees no import. A module that moves has to stay under both."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (contract,) = (found for found in contracts if found["name"].startswith("The pure packages"))
    modules = {name.removeprefix("remote_fetch.").replace(".", "/") for name in contract["source_modules"]}
    assert modules <= {place.removesuffix(".py") for place in house_rules.PURE}
    assert [place for place in house_rules.PURE if not (ROOT / "remote_fetch" / place).exists()] == []


def test_the_page_of_modules_has_their_first_sentences(root: Path) -> None:
    write(root, "fetchers/__init__.py", '"""All fetchers."""\n')
    write(root, "fetchers/s3.py", '"""Reads\nS3.\n\nRules of the file: none.\n"""\n')
    write(root, "fetchers/test_s3.py", MODULE)
    page = module_list.listing(root)
    assert "## fetchers/\n\nAll fetchers.\n\n- `s3.py`: Reads S3.\n" in page
    assert "test_s3" not in page


@pytest.mark.parametrize(
    ("subject", "breach"),
    [
        ("locate: take a size below 1 as unknown", None),
        ("docs, cli: name the URL", None),
        ("locate: " + "x" * 64, None),
        ("locate: " + "x" * 65, "73 characters"),
        ("What was found in the moment it came", "not `area: imperative`"),
        ("Locate: x", "not `area: imperative`"),
    ],
)
def test_the_subject_of_a_commit(subject: str, breach: str | None) -> None:
    found = house_rules.subject_breach(subject)
    assert found is breach or (breach is not None and breach in str(found))


def test_files_that_a_program_left_behind(root: Path) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=60)
    for folder in ("~/cache", "out"):
        (root / folder).mkdir(parents=True)
        write(root, f"{folder}/a", "")
    subprocess.run(["git", "-C", str(root), "add", "--all", "--", ":!out"], check=True, timeout=60)
    (found,) = messages(root)
    assert found.startswith("~:1: no name of the project's own")


def test_main_says_what_it_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.setattr(house_rules, "__file__", str(root / "tools" / "house_rules.py"))
    assert house_rules.main() == 0
    assert "kept" in capsys.readouterr().out
    write(root, "README.md", "Run `make bricks`.\n")
    assert house_rules.main() == 1
    assert (
        "README.md:1: make bricks: no such target in the Makefile\nhouse rules: broken 1 times\n"
        in capsys.readouterr().out
    )


def pins(name: str) -> set[str]:
    """The pinned requirements of a lock file, markers included."""
    return set(re.findall(r"^([a-z0-9].*?) \\$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))


def test_dev_contains_runtime() -> None:
    """The development lock has all packages of the runtime lock, so `make demo` and `make test` can share a venv."""
    assert len(pins("requirements/runtime.lock")) > 5
    assert pins("requirements/runtime.lock") <= pins("requirements/dev.lock")


def test_what_is_built_and_shipped_is_what_was_tested() -> None:
    """The other lock files have no version of their own."""
    assert versions("requirements/build.lock") <= versions("requirements/runtime.lock")
    assert versions("requirements/container.lock") <= versions("requirements/dev.lock")


def versions(name: str) -> set[str]:
    """The pins without their markers: another dependency may widen the platforms of a package, and not its version."""
    return {pin.partition(" ;")[0].strip() for pin in pins(name)}


@pytest.mark.parametrize("name", LOCKS)
def test_lock_files_are_pinned_hashed_and_name_no_host(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert all("==" in pin for pin in pins(name))
    assert text.count("\n    --hash=sha256:") >= len(pins(name))


@pytest.mark.parametrize("name", LOCKS)
def test_lock_files_hold_the_dependencies(name: str) -> None:
    locked = {re.split("==", pin)[0].lower() for pin in pins(name)}
    extras = PROJECT["project"]["optional-dependencies"]
    of_container = re.findall(r"^CONTAINER_EXTRAS := (.*)$", MAKEFILE, re.MULTILINE)[0].split()
    core, building = PROJECT["project"]["dependencies"], PROJECT["build-system"]["requires"]
    wanted = {
        "requirements/runtime.lock": [*core, *building, *extras["cli"]],
        "requirements/dev.lock": [*core, *building, *extras["dev"]],
        "requirements/build.lock": building,
        "requirements/installer.lock": ["uv"],
        "requirements/container.lock": [*core, *(want for extra in of_container for want in extras[extra])],
    }[name]
    names = {re.split(r"[\[><=;]", want)[0].lower() for want in wanted} - {PROJECT["project"]["name"]}
    assert names <= locked, "run `make lock`"


def test_the_build_requirements_are_said_once_more_for_the_locks() -> None:
    lines = (ROOT / "requirements/build.in").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == PROJECT["build-system"]["requires"]


def test_the_licenses_of_compiled_code_are_shipped() -> None:
    """Each crate of the native decoder is named: a wheel contains some of them, and their licenses ask for a copy."""
    assert "NOTICE" in PROJECT["project"]["license-files"]
    head, *texts = (ROOT / "NOTICE").read_text(encoding="utf-8").split("-" * 80 + "\n")
    lists = [set(re.split(r",\s+", part.partition(":\n")[2].strip())) for part in head.strip().split("\n\n")[1:]]
    lock = tomllib.loads((ROOT / "remote_fetch/decode/native/Cargo.lock").read_text(encoding="utf-8"))
    crates = {package["name"] for package in lock["package"]} - {"remote-fetch-native"}
    assert set().union(*lists) == crates | {"libdeflate", "lz4", "zstd"}
    assert {title.partition(":")[0].partition(" ")[0] for title in texts[::2]} == lists[1]


def test_readme_needs_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert re.search(rf"\bmake {command}\b", readme)
        assert re.search(rf"^{command}:.*## ", MAKEFILE, re.MULTILINE)


def test_ci_opens_the_same_door() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "REMOTE_FETCH_STRICT=1" in script
    assert script.rstrip().endswith("exec make test")


def test_no_recipe_runs_a_job_in_the_background() -> None:
    """A shell of make lets such a job ignore Ctrl-C: the job would go on after make has ended."""
    assert re.findall(r"^\t.*[^&>]&(?![&0-9]).*", MAKEFILE, re.MULTILINE) == []


@pytest.mark.parametrize(("ending", "is_broken_off"), [("exit 0", False), ("exit 2", False), ("kill -9 $$", True)])
def test_a_venv_is_made_anew_after_uv_was_killed(tmp_path: Path, ending: str, *, is_broken_off: bool) -> None:
    """A killed uv leaves packages without some files, and the next uv and pip take these for whole."""
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    log = tmp_path / "log"
    for name, line in {"bin/python": 'echo "$*" >> ../log', "bin/uv": ending, "made.stamp": ""}.items():
        (venv / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (venv / name).chmod(0o755)
    make = ("make", "--no-print-directory", "-f", str(ROOT / "Makefile"), f"VENV={venv}")
    (tmp_path / "tree").mkdir()
    made = subprocess.run([*make, "install-packages", "PACKAGES=some.lock"], cwd=tmp_path / "tree", check=False)
    assert (made.returncode != 0) is is_broken_off
    assert ("some.lock" in log.read_text(encoding="utf-8")) is (ending == "exit 2"), "pip does it"
    question = [*make, "--dry-run", str(venv / "made.stamp")]
    again = subprocess.run(question, cwd=tmp_path / "tree", capture_output=True, text=True, check=True).stdout
    assert (f"-m venv --clear {venv}" in again) is is_broken_off
    assert ("-m venv" in again) is is_broken_off


def test_the_changelog_knows_the_version() -> None:
    version = PROJECT["project"]["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

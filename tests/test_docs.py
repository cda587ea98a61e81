"""The pages agree with the code: commands run, options, keys and errors exist, snippets are executed or compile.

Rules of the file:

- Pages are read as text.
- `make docs` executes the snippets that are marked for it, and fails if a snippet fails.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
import textwrap
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from remote_fetch import errors
from remote_fetch.cli import main
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.observe import Report
from tests.cases import each_of

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^( *)```(\w+)?([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
"""A block of code. In a tab or a list it is indented."""


def blocks(path: Path, language: str) -> list[tuple[str, str]]:
    """The code blocks of a page in one language: their options and their text."""
    found = BLOCK.findall(path.read_text(encoding="utf-8"))
    return [(options, textwrap.dedent(text)) for _, name, options, text in found if name == language]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands() -> list[str]:
    lines = [line for path in PAGES for _, text in blocks(path, "console") for line in text.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ remote-fetch")]


@pytest.mark.parametrize("command", commands())
def test_a_command_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "tier").symlink_to(str(files("remote_fetch.cli") / "demo_bucket"))
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0, capfdbinary.readouterr().err
    assert capfdbinary.readouterr().out


def test_there_are_commands() -> None:
    assert len(commands()) >= 8


@each_of("path", PAGES, ids=lambda path: path.stem)
def test_python_compiles(path: Path) -> None:
    for _, text in blocks(path, "python"):
        compile(text, str(path), "exec")


@pytest.mark.scheduled  # `make check` builds the documentation, which runs them
@each_of("path", PAGES, ids=lambda path: path.stem)
def test_executed_python_runs(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As markdown-exec runs it: blocks of one session share their names."""
    monkeypatch.setenv("COLUMNS", "80")  # a page may set it; afterwards it is as it was
    sessions: dict[str, dict[str, object]] = {}
    for options, text in blocks(path, "python"):
        if 'exec="on"' in options:
            session = re.search(r'session="(\w+)"', options)
            names = {} if session is None else sessions.setdefault(session[1], {})
            exec(compile(text, str(path), "exec"), names)
            assert capsys.readouterr().out or session is not None, "a block that shows nothing"


def test_what_is_to_be_tried_is_shown_whole() -> None:
    """A block that is hidden, and binds names for the next one, leaves the reader with a NameError."""
    sections = {path.name: path.read_text(encoding="utf-8").partition("\n## Try it\n")[2] for path in PAGES}
    tried = {name: text.partition("\n## ")[0] for name, text in sections.items() if text}
    assert tried
    hidden = 'python exec="on" session='
    assert [name for name, text in tried.items() if hidden in text] == []


def test_every_error_has_its_paragraph() -> None:
    leaves = {name for name in errors.__all__ if hasattr(getattr(errors, name), "kind")}
    headings = re.findall(r"^### (\w+)$", page("howto/troubleshoot.md"), re.MULTILINE)
    assert sorted(headings) == sorted(leaves)


def texts_of_the_code() -> str:
    """All that the product may say, a text a line; what is put into one stands as a NUL."""
    texts = []
    for path in (found for package in ("remote_fetch", "fetchers") for found in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def quoted(path: Path) -> list[str]:
    """The quotations of a page, without code. `...` stands for a part that differs."""
    prose = re.sub(r"`[^`]*`", "", BLOCK.sub("", path.read_text(encoding="utf-8")))
    return re.findall(r'"([^"]+)"', " ".join(prose.split()))


def test_every_message_that_is_explained_exists() -> None:
    messages, said = quoted(ROOT / "docs" / "howto" / "troubleshoot.md"), texts_of_the_code()
    assert len(messages) >= 6
    pieces = [(message, piece.strip(" .")) for message in messages for piece in message.split("...")]
    assert [message for message, piece in pieces if piece not in said] == []


def test_every_extra_that_is_named_exists() -> None:
    """In a command of a page or an example, and in an error of the code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folders = ("remote_fetch", "fetchers", "examples")
    modules = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named: dict[str, str] = {}
    for path in [*PAGES, ROOT / "README.md", *modules]:
        text = path.read_text(encoding="utf-8")
        lists = re.findall(r"""(?:remote-fetch|\.whl|"\.)\[([a-z0-9,-]+)\]|extra="([a-z0-9-]+)\"""", text)
        named |= {name: path.name for names in lists for name in "".join(names).split(",")}
    assert len(named) > 10
    assert {name: place for name, place in named.items() if name not in project["optional-dependencies"]} == {}


def test_every_field_of_the_report_is_explained() -> None:
    text = page("reference/observer.md")
    assert [field.name for field in dataclasses.fields(Report) if f'    "{field.name}": "' not in text] == []


def test_every_column_is_explained() -> None:
    text = page("reference/arrow.md")
    assert [name for name in COLUMNS if f'    "{name}": "' not in text] == []


def test_every_format_token_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cat", "--url", "nowhere", "-t", "t", "-f", "%?"]) == 1
    known = set(re.findall(r"%\S", capsys.readouterr().err.split("there are")[1]))
    table = page("reference/cli.md").split("| token | is |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(%.)`", table)) == known


def test_options_named_in_a_block_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Each `--option` and `-x` of a remote-fetch command in a block of any page, also of one that is not run."""
    helps: dict[str, str] = {}
    unknown = []
    for path in [*PAGES, ROOT / "README.md"]:
        texts = [text for language in ("bash", "console", "text") for _, text in blocks(path, language)]
        for command, rest in re.findall(
            r"^(?:\$ |[\w./]+/)?remote-fetch (config check|[a-z]+)([^|>#\n]*)",
            re.sub(r"\\\n\s*", "", "\n".join(texts)),
            re.MULTILINE,
        ):
            if command not in helps:
                with pytest.raises(SystemExit):
                    main([*command.split(), "--help"])
                helps[command] = capsys.readouterr().out
            options = re.findall(r"(?<=\s)(--[a-z-]+|-[a-zA-Z])(?=[\s=]|$)", rest)
            unknown += [
                f"{path.name}: {command} {option}"
                for option in options
                if not re.search(rf"(^|[ \[]){option}\b", helps[command], re.MULTILINE)
            ]
    assert len(helps) > 12
    assert unknown == []


@each_of("path", [*PAGES, ROOT / "README.md"], ids=lambda path: path.stem)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_files_that_pages_name_exist() -> None:
    """Paths of tests, tools and examples, and modules that a page runs. Design notes also name what is gone."""
    root = ("README.md", "CONTRIBUTING.md")
    missing = []
    for path in [*(path for path in PAGES if path.parent.name != "design"), *(ROOT / name for name in root)]:
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"`((?:tests|tools|examples)/[\w./-]+)`", text)
        names += [f"{name.replace('.', '/')}*" for name in re.findall(r"python -m ((?:tests|tools)(?:\.\w+)+)", text)]
        missing += [f"{path.name}: {name}" for name in names if not any(ROOT.glob(name))]
    assert missing == []

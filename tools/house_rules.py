"""The rules of CONTRIBUTING.md that no ready-made tool checks. `python -m tools.house_rules` prints every breach.

Rules of the file:

- Standard library only.
- Every rule is a function from a project root to breaches, so that the tests can break it on purpose.
- A breach names file, line and what to do.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools import module_list

__all__ = ["RULES", "Breach", "breaches", "main", "subject_breach"]

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
SMALL_MODULE_LINES = 60
"""A shorter module needs no rules in its docstring."""

PRODUCT = ("remote_fetch", "fetchers", "tools")
MAX_SUBJECT = 72
SUBJECTS_SINCE = "6ea8bc3"
"""The last commit before subjects were checked."""
PURE = (
    "amounts.py",
    "decode",
    "errors.py",
    "failures/file_errors.py",
    "formats",
    "html_table.py",
    "locate/lineage.py",
    "locate/saved_replay.py",
    "locate/snapshot.py",
    "locate/timeline.py",
    "locate/timeline_builder.py",
    "locate/uploads.py",
    "model.py",
    "plan",
    "progress.py",
)
OWNING = ("remote_fetch/consumer",)
"""Packages in which only the methods of a class assign its fields."""
BORROWING = ("fetchers",)
"""Packages that use the objects of other packages, by their public names."""
INTERFACES = frozenset({"_get_kwargs_from_urls", "_replace", "_strip_protocol"})
"""Names with a `_` that are documented for callers: fsspec's of a filesystem's class, and those of a NamedTuple."""
IMPURE_CALLS = frozenset({"breakpoint", "input", "open", "print"})

TEXT_SUFFIXES = frozenset(
    {"", ".cfg", ".in", ".json", ".lock", ".md", ".py", ".pyi", ".sh", ".toml", ".txt", ".yaml", ".yml"}
)
TOP = re.compile(
    r"\.[\w./-]+|docs|examples|fetchers|remote_fetch|requirements|tests|tools|Makefile|[A-Z]+(?:\.md|\.in)?|[a-z]+\.(?:toml|yml)"
)
"""Names at the top of the project."""
NOT_OURS = frozenset({"__pycache__", "build", "dist", "htmlcov", "site"})

# Put together from pieces: this file must pass its own rule.
_STRAY = re.compile("|".join((r"(?<![\w.])/" + r"(?:work|farm|tmp/w|root|home/\w+)/", r"\.\./" + "shared")))
_MAKE = re.compile(r"(?:`|^\$ |^)make ([a-z-]+)(?=`| |$)")
_PLACE = re.compile(r"`((?:remote_fetch|fetchers|tools|tests|docs|examples)/[\w/.]*)`")
_SUBJECT = re.compile(r"[a-z][\w./-]*(?:, [a-z][\w./-]*)*: \S")
_CODE = re.compile(r"`[^`]*`")
_TELLS = re.compile(
    r"(?:^|[.:;] )(?:What|Whatever|Whoever)\b(?![^.]*\?)"
    r"|\b(?i:whoever|somebody|nobody|someone|anybody|is told|is said|anew|meanwhile|by itself|(?:in|of) the stead)\b"
    r"|, where there (?:is|are)\b"
)
"""Words of sentences that readers read twice. CONTRIBUTING.md shows what to write."""


class Breach(NamedTuple):
    """One broken rule. `line` counts from 1."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def _modules(root: Path, *packages: str) -> Iterator[tuple[Path, str]]:
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


def _relative(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def sizes(root: Path) -> Iterator[Breach]:
    """Modules and functions are not longer than a reader can take in at once."""
    for path, source in _modules(root, *PRODUCT):
        name = _relative(root, path)
        lines = source.count("\n")
        if lines > MAX_MODULE_LINES:
            yield Breach(name, 1, f"{lines} lines, more than {MAX_MODULE_LINES}: is it doing two things?")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    yield Breach(name, node.lineno, f"{node.name} has {length} lines, more than {MAX_FUNCTION_LINES}")


def docstrings(root: Path) -> Iterator[Breach]:
    """A module says what it is and which rules hold in it, before the reader meets the code."""
    for path, source in _modules(root, *PRODUCT, "tests"):
        name = _relative(root, path)
        docstring = ast.get_docstring(ast.parse(source))
        if docstring is None:
            if source.strip():
                yield Breach(name, 1, "no docstring: say what the module is")
        elif (
            "Rules of the file:" not in docstring
            and name.startswith(PRODUCT)
            and path.name != "__init__.py"
            and source.count("\n") > SMALL_MODULE_LINES
        ):
            yield Breach(name, 1, 'no "Rules of the file:" in the docstring')


def words(root: Path) -> Iterator[Breach]:
    """Docstrings are in plain words: a named actor as the subject, "if" for a condition, one idea a sentence."""
    for path, source in _modules(root, *PRODUCT, "tests", "examples"):
        name = _relative(root, path)
        if not _TELLS.search(" ".join(source.replace('"', ". ").split())):
            continue  # most files; parsing all of them would take longer
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = _CODE.sub("", " ".join(str(node.value.value).split()))
                for tell in _TELLS.findall(text)[:1]:
                    yield Breach(
                        name, node.lineno, f"{tell.strip('.:; ')!r} in a docstring: write as in CONTRIBUTING.md"
                    )


def purity(root: Path) -> Iterator[Breach]:
    """Pure modules call no builtin that reaches the world, which the import contracts cannot see."""
    pure = [root / "remote_fetch" / name for name in PURE]
    for path, source in _modules(root, "remote_fetch"):
        if not any(path == place or place in path.parents for place in pure):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                yield Breach(_relative(root, path), node.lineno, f"{node.func.id}() in a pure module")


def ownership(root: Path) -> Iterator[Breach]:
    """In some packages only the methods of a class assign its fields, so that its rules stand in one place."""
    for package in OWNING:
        modules = [(_relative(root, path), ast.parse(source)) for path, source in _modules(root, package)]
        assigned = [(name, target) for name, tree in modules for target in _assigned_attributes(tree)]
        fields = {target.attr for _, target in assigned if _is_self(target)}
        for name, target in assigned:
            if target.attr in fields and not _is_self(target):
                yield Breach(name, target.lineno, f"assigns {ast.unparse(target)}: give its class a method for that")


def _assigned_attributes(tree: ast.Module) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def _is_self(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id == "self"


def borrowed(root: Path) -> Iterator[Breach]:
    """A package that builds on another uses its public names, so that a release of the other does not break it."""
    for path, source in _modules(root, *BORROWING):
        for node in ast.walk(ast.parse(source)):
            for name in _names_of_others(node):
                if re.match("_[^_]", name) and name not in INTERFACES:
                    yield Breach(_relative(root, path), getattr(node, "lineno", 1), f"uses the private name {name}")


def _names_of_others(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(ast.Name("self" | "cls") | ast.Call(ast.Name("super"))):
            return
        case ast.Attribute(attr=name):
            yield name
        case ast.Call(ast.Name("getattr" | "hasattr" | "setattr"), [_, ast.Constant(str(name)), *_]):
            yield name
        case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] not in PRODUCT:
            yield from (*module.split("."), *(alias.name for alias in names))


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    for folder, folders, files in os.walk(root):
        # Folders are left out before the walk enters them: an environment has a hundred times as many files.
        folders[:] = sorted(name for name in folders if name not in NOT_OURS and (name == ".ci" or name[0] != "."))
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix in TEXT_SUFFIXES and (name == ".gitignore" or name[0] != "."):
                yield _relative(root, path), path.read_text(encoding="utf-8", errors="replace")


def paths(root: Path) -> Iterator[Breach]:
    """No text names a folder of the machine on which it was written."""
    for name, text in _texts(root):
        for number, line in enumerate(text.splitlines(), 1):
            if found := _STRAY.search(line):
                yield Breach(name, number, f"names a place outside the project: {found.group()}")


def targets(root: Path) -> Iterator[Breach]:
    """Every make target that a Markdown file names is in the Makefile."""
    known = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name, text in _texts(root):
        if not name.endswith(".md"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for target in _MAKE.findall(line):
                if target not in known:
                    yield Breach(name, number, f"make {target}: no such target in the Makefile")


def module_page(root: Path) -> Iterator[Breach]:
    """docs/modules.md equals the text that `tools.module_list` makes of the tree."""
    page = root / module_list.PAGE
    if not page.is_file() or page.read_text(encoding="utf-8") != module_list.listing(root):
        yield Breach(module_list.PAGE, 1, "out of date: run `make modules`")


def tree_map(root: Path) -> Iterator[Breach]:
    """docs/map.md names only modules and folders that exist."""
    name = "docs/map.md"
    for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
        for place in _PLACE.findall(line):
            if not (root / place).exists():
                yield Breach(name, number, f"names {place}, which does not exist")


def top_names(root: Path) -> Iterator[Breach]:
    """Git knows no file that a test or a program left behind at the top of the project."""
    if not (root / ".git").exists():
        return
    command = ["git", "-C", str(root), "ls-files", "-z"]
    files = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split("\0")
    for name in sorted({name.partition("/")[0] for name in files if name}):
        if not TOP.fullmatch(name):
            yield Breach(name, 1, "no name of the project's own: was it left behind? `git rm` it, or name it in TOP")


def subjects(root: Path) -> Iterator[Breach]:
    """A commit's subject is `area: imperative` in at most 72 characters. Commits before the rule are left alone."""
    if not (root / ".git").exists():
        return
    command = ["git", "-C", str(root), "log", "--no-merges", "--format=%h %s", f"{SUBJECTS_SINCE}..HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    for line in found.stdout.splitlines():  # none if the history is too short to hold the commit
        short, _, subject = line.partition(" ")
        if breach := subject_breach(subject):
            yield Breach(f"commit {short}", 1, breach)


def subject_breach(subject: str) -> str | None:
    """The fault of a commit's subject, None if it has none."""
    if len(subject) > MAX_SUBJECT:
        return f"the subject has {len(subject)} characters, more than {MAX_SUBJECT}: the story belongs in the body"
    if not _SUBJECT.match(subject):
        return f"the subject is not `area: imperative`: {subject}"
    return None


RULES: tuple[Callable[[Path], Iterator[Breach]], ...] = (
    sizes,
    docstrings,
    words,
    purity,
    ownership,
    borrowed,
    paths,
    targets,
    module_page,
    tree_map,
    top_names,
    subjects,
)


def breaches(root: Path) -> list[Breach]:
    """Every breach of every rule in the project at `root`."""
    return [breach for rule in RULES for breach in rule(root)]


def main() -> int:
    """Print the breaches. The exit code is 1 if there are any."""
    found = breaches(Path(__file__).resolve().parents[1])
    for breach in found:
        print(breach)
    print(f"house rules: broken {len(found)} times" if found else "house rules: kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

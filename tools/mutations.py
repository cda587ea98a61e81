"""Changes the product in many small ways, one by one. The tests have to notice each change. `make mutations`.

`tests/mutations.toml` is the table. A row names its room, an old text, a new text, and the test files that have to
fail. Run it after a change of the tests: a mutation that was caught before has to be caught after it. `ARGS` takes
words that the rooms or texts of the wanted rows contain.

Rules of the file:

- The checkout is never changed. Each row is applied to a temporary copy.
- The text of a row, and not a path, finds the place, so that a file may move. If a text is not in the product exactly
  once, no row is run.
- The test files have to pass without a mutation. If they do not, a failure with it proves nothing.
- A run that takes too long counts as caught, and the output says so.
- A compiled library beside a changed source is set aside, because it does not change with its source.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Mutation", "TableError", "caught", "load", "main", "place_of", "selection"]

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path("tests") / "mutations.toml"
PRODUCT = ("remote_fetch", "fetchers")
_LEFT_OUT = (".git", ".venv", ".rig", ".hypothesis", ".*_cache", "site", "build", "__pycache__", "*.egg-info")
_TIMEOUT_S = 600
_PYTEST = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not java and not servers")
_FAILED = 1
"""The exit code of pytest if a test failed. Any other error proves nothing."""


class TableError(Exception):
    """A row of the table does not fit the tree. The message names the row."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One row. `old` is in the product once. If it is replaced by `new`, the files named `tests` have to fail."""

    room: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.room}: {' '.join(self.old.split())} -> {' '.join(self.new.split())}"


def load(root: Path) -> list[Mutation]:
    """The rows of the table. Raises TableError for a row that changes nothing or names no test."""
    rows = tomllib.loads((root / TABLE).read_text(encoding="utf-8"))["mutation"]
    found = [Mutation(row["room"], row["old"], row["new"], tuple(row["tests"])) for row in rows]
    for mutation in found:
        if mutation.old == mutation.new or not mutation.tests:
            raise TableError(f"{mutation}: changes nothing, or names no test")
    return found


@cache
def _texts(root: Path) -> Mapping[Path, str]:
    """The files of the product of a tree, as they were when it was first asked for."""
    files = (path for folder in PRODUCT for path in sorted((root / folder).rglob("*.py")))
    return {path: path.read_text(encoding="utf-8") for path in files}


@cache
def _test_files(root: Path) -> Mapping[str, list[str]]:
    """The paths of the files below tests/ by their names, as they were when they were first asked for."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("*.py")):
        found.setdefault(path.name, []).append(str(path.relative_to(root)))
    return found


def place_of(mutation: Mutation, root: Path) -> Path:
    """The one file of the product that has the text. Raises TableError if there is none, or more than one place."""
    counts = {path: text.count(mutation.old) for path, text in _texts(root).items()}
    places = [path for path, count in counts.items() if count]
    if len(places) != 1 or counts[places[0]] != 1:
        where = ", ".join(f"{path.relative_to(root)} ({counts[path]} times)" for path in places) or "nowhere"
        raise TableError(f"{mutation}: the text has to stand once, and stands {where}: mend the row in {TABLE}")
    return places[0].relative_to(root)


def selection(mutation: Mutation, root: Path) -> list[str]:
    """The test files of a row, in any folder below tests/. Raises TableError for a name that no file has."""
    found: list[str] = []
    for name in mutation.tests:
        paths = [path for path in _test_files(root).get(Path(name).name, []) if f"/{path}".endswith(f"/{name}")]
        if not paths:
            raise TableError(f"{mutation}: there is no tests/**/{name}: mend the row in {TABLE}")
        found += paths
    return found


def _pytest(tree: Path, tests: Iterable[str]) -> int | None:
    """The exit code of pytest, None if it takes too long."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "REMOTE_FETCH_STRICT": ""}
    command = [sys.executable, *_PYTEST, *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode not in (0, _FAILED):
        raise TableError(f"pytest ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.returncode


def caught(mutation: Mutation, tree: Path) -> str | None:
    """Apply the mutation to a copy, run its tests, and undo it.

    Returns how the tests noticed it, None if they did not.
    """
    path = tree / place_of(mutation, tree)
    source = path.read_text(encoding="utf-8")
    library = [(built, built.with_suffix(".aside")) for built in path.parent.glob(f"{path.stem}.*.so")]
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    for built, aside in library:
        built.rename(aside)
    try:
        code = _pytest(tree, selection(mutation, tree))
    finally:
        path.write_text(source, encoding="utf-8")
        for built, aside in library:
            aside.rename(built)
    return {0: None, _FAILED: "caught", None: "caught: it took too long"}[code]


def main(arguments: Sequence[str] | None = None) -> int:
    """Apply each mutation, run its tests, and print the result. The exit code is 1 if a mutation was not caught."""
    parser = argparse.ArgumentParser(prog="mutations", description="Change the product: the tests have to notice.")
    parser.add_argument("words", nargs="*", help="only rows that contain one of these words")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout to run the rows on")
    given = parser.parse_args(arguments)
    rows = [row for row in load(ROOT) if not given.words or any(word in str(row) for word in given.words)]
    for row in rows:
        place_of(row, given.tree)
        selection(row, given.tree)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(given.tree, tree, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        sound: dict[tuple[str, ...], bool] = {}
        for row in rows:
            tests = tuple(selection(row, tree))
            if tests not in sound:
                sound[tests] = _pytest(tree, tests) == 0
            outcome = caught(row, tree) if sound[tests] else "no proof: its tests fail without it"
            survivors += outcome is None or not sound[tests]
            print(f"{outcome or 'SURVIVED'}: {row}", flush=True)
    print(f"{len(rows) - survivors} of {len(rows)} mutations were caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

"""The table of mutations fits the tree, and its runner is believed: on a small tree, caught and not caught."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tools import mutations
from tools.mutations import Mutation, TableError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

PRODUCT = "def half(number: int) -> int:\n    return number // 2\n"
TEST = "from remote_fetch.numbers import half\n\ndef test_half(): assert half(4) == 2\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A product of one function with one test."""
    for name, text in {
        "remote_fetch/__init__.py": "",
        "remote_fetch/numbers.py": PRODUCT,
        "tests/plan/test_numbers.py": TEST,
        "pytest.ini": "[pytest]\nmarkers =\n    java\n    servers\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def row(old: str = "number // 2", new: str = "number // 3", test: str = "plan/test_numbers.py") -> Mutation:
    return Mutation("plan", old, new, (test,))


@pytest.mark.slow
def test_every_row_fits_this_tree() -> None:
    rows = mutations.load(ROOT)
    for mutation in rows:
        mutations.place_of(mutation, ROOT)
        assert mutations.selection(mutation, ROOT)
    assert len(rows) >= 40
    assert len({mutation.old for mutation in rows}) == len(rows)
    rooms = Counter(mutation.room for mutation in rows)
    assert min(rooms.values()) >= 2, rooms


@pytest.mark.slow
def test_a_mutation_is_caught_or_not(tree: Path) -> None:
    assert mutations.caught(row(), tree) == "caught"
    assert mutations.caught(row(new="-(-number // 2)"), tree) is None
    assert (tree / "remote_fetch" / "numbers.py").read_text(encoding="utf-8") == PRODUCT


@pytest.mark.slow
def test_a_run_that_ends_without_a_test_is_no_proof(tree: Path) -> None:
    (tree / "tests" / "plan" / "test_numbers.py").write_text("import nothing_of_the_kind\n", encoding="utf-8")
    with pytest.raises(TableError, match="pytest ended with 2"):
        mutations.caught(row(), tree)


def test_a_run_that_takes_too_long(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "_TIMEOUT_S", 0.01)
    assert mutations.caught(row(), tree) == "caught: it took too long"


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (row(old="number // 5"), "stands nowhere"),
        (row(old="number"), "numbers.py .2 times"),
    ],
)
def test_a_text_that_does_not_stand_once(tree: Path, mutation: Mutation, message: str) -> None:
    with pytest.raises(TableError, match=message):
        mutations.place_of(mutation, tree)


def test_a_test_that_is_not_there(tree: Path) -> None:
    assert mutations.selection(row(), tree) == ["tests/plan/test_numbers.py"]
    for name in ("spark/test_numbers.py", "an/test_numbers.py"):
        with pytest.raises(TableError, match="there is no tests"):
            mutations.selection(row(test=name), tree)


@pytest.mark.scheduled
@pytest.mark.slow
def test_the_whole_run(tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(mutations, "ROOT", tree)
    text = '[[mutation]]\nroom = "plan"\nold = "number // 2"\nnew = "{}"\ntests = ["plan/test_numbers.py"]\n'
    (tree / mutations.TABLE).write_text(text.format("number // 3"), encoding="utf-8")
    assert mutations.main(["--tree", str(tree)]) == 0
    assert "1 of 1 mutations were caught" in capsys.readouterr().out
    (tree / mutations.TABLE).write_text(text.format("-(-number // 2)"), encoding="utf-8")
    assert mutations.main(["--tree", str(tree), "plan"]) == 1
    assert "SURVIVED: plan: number // 2 -> -(-number // 2)\n0 of 1" in capsys.readouterr().out


def test_a_row_that_changes_nothing(tree: Path) -> None:
    text = '[[mutation]]\nroom = "plan"\nold = "a"\nnew = "a"\ntests = ["plan/test_numbers.py"]\n'
    (tree / mutations.TABLE).write_text(text, encoding="utf-8")
    with pytest.raises(TableError, match="changes nothing"):
        mutations.load(tree)

"""Every notebook runs from its first cell to its last, in a kernel of its own, and is saved without outputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
_TIMEOUT_S = 180


def notebook_of(path: Path) -> Any:
    read: Any = nbformat.read
    return read(path, as_version=4)


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["duckdb", "polars", "spark"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_saved_without_outputs(path: Path) -> None:
    saved = notebook_of(path)
    nbformat.validate(saved)
    assert 3 <= len(saved.cells) <= 12
    code = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert any("assert " in cell.source for cell in code)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.scheduled] if path.stem == "spark" else []) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = notebook_of(path)
    NotebookClient(notebook, timeout=_TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    tables = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert tables
    if path.stem != "duckdb":  # the plan or the report, as a notebook shows it
        assert any("<table><caption>" in output.data.get("text/html", "") for output in tables)

"""Every example runs, as a process of its own and outside the checkout, and prints what it is about.

With a change `make docs` runs those without a broker too (docs/tutorial/examples.md), and this file runs the first one.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import each_of, of_a_change

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))

NOT_LOCKED = {"10_daft.py": "daft", "11_ray.py": "ray"}
"""Examples of packages that the lock files do not have. A job of the schedule installs them."""

PRINTED = {
    "01_first_read.py": (
        "  5  2023-11-14 22:31:26  b''",
        "9 records committed, 16 written",
        "read with 4 GETs of segments and 7 of indexes",
    ),
    "02_polars.py": ("10901", "12835", "41 of 126 records in one minute"),
    "03_duckdb.py": ("75", "the last record of partition 0 has offset 125"),
    "08_write_a_fetcher.py": ("SqliteFetcher fits the port: True",),
    "10_daft.py": ("'partition': [3, 4]",),
    "11_ray.py": ("126 records",),
    "14_examine_a_fetcher.py": ("15 passed",),
}


ON_A_BROKER = {
    "04_remote_consumer.py": "tests/rig/test_consumer_traffic.py",
    "05_spark_batch.py": "tests/rig/test_spark.py",
    "06_spark_backfill.py": "tests/rig/test_spark_streaming.py",
    "07_spark_available_now.py": "tests/rig/test_spark_streaming.py",
    "09_typed_values.py": "tests/rig/test_registry.py",
    "12_protobuf.py": "tests/rig/test_registry.py",
    "13_json.py": "tests/rig/test_registry.py",
}
"""Examples that need one, and where they run."""


def is_installed(name: str) -> bool:
    """Whether the packages of an example are there."""
    package = NOT_LOCKED.get(name)
    return package is None or importlib.util.find_spec(package) is not None


def test_every_example_is_known_here() -> None:
    assert sorted([*PRINTED, *ON_A_BROKER]) == EXAMPLES
    for name, where in ON_A_BROKER.items():
        assert name in (ROOT / where).read_text(encoding="utf-8")
    assert [int(name[:2]) for name in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


def test_every_example_is_short_and_has_its_output_in_the_documentation() -> None:
    page = (ROOT / "docs" / "tutorial" / "examples.md").read_text(encoding="utf-8")
    for name in EXAMPLES:
        source = (ROOT / "examples" / name).read_text(encoding="utf-8")
        assert len(source.splitlines()) < 60, name
        assert f"$ python examples/{name}" in page or f'show("{name.removesuffix(".py")}")' in page, name


@each_of("name", sorted(ON_A_BROKER))
def test_without_arguments_an_example_says_how_to_call_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its docstring has the line, and it ends before it does anything."""
    script = ROOT / "examples" / name
    monkeypatch.setattr(sys, "argv", [str(script)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert f"    python {name} BOOTSTRAP_SERVERS TIER_URL TOPIC" in str(ended.value.code)


ALONE = [name for name in EXAMPLES if name not in ON_A_BROKER and is_installed(name)]


@pytest.mark.slow
@pytest.mark.parametrize("name", of_a_change(ALONE, "01_first_read.py", "10_daft.py", "11_ray.py"))
def test_example(name: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, *([] if name == "11_ray.py" else ["-W", "error"]), str(ROOT / "examples" / name)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == "" or name == "11_ray.py"  # Ray shows its progress there
    for text in PRINTED[name]:
        assert text in result.stdout

"""The cost of an import: `import remote_fetch` loads only the names that are used.

Rules of the file:

- Every import happens in a fresh process, because this process has loaded everything.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import remote_fetch

EXTRAS = frozenset(
    {"adlfs", "azure", "boto3", "botocore", "Crypto", "cryptography", "gcsfs", "google", "kafka", "prometheus_client"}
    | {"pyspark", "rich", "s3fs", "starlette", "uvicorn"}
)
HEAVY = frozenset({"confluent_kafka", "cramjam", "crc32c", "fsspec", "pyarrow", "zstandard"})
FOREIGN = frozenset({"aiokafka", "duckdb", "numpy", "pandas", "polars"})


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after `statement`, and had not before."""
    code = (
        "import json, sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(result.stdout))


def test_import_is_light() -> None:
    loaded = loaded_by("import remote_fetch")
    assert "remote_fetch" in loaded
    assert loaded & (EXTRAS | HEAVY | FOREIGN) == set()


def test_values_and_errors_are_light() -> None:
    loaded = loaded_by("import remote_fetch.errors, remote_fetch.model, remote_fetch.fetch.spi, fetchers")
    assert loaded & (EXTRAS | HEAVY | FOREIGN) == set()


@pytest.mark.parametrize("name", sorted(remote_fetch.__all__))
def test_no_public_name_needs_an_extra(name: str) -> None:
    loaded = loaded_by(f"import remote_fetch; remote_fetch.{name}")
    assert loaded & (EXTRAS | FOREIGN) == set()


def test_the_command_line_starts_without_extras() -> None:
    loaded = loaded_by("import remote_fetch.cli; remote_fetch.cli.main")
    assert loaded & (EXTRAS | FOREIGN) == set()


def test_public_names_are_few_and_there() -> None:
    names = remote_fetch.__all__
    assert len(names) <= 25
    assert len(set(names)) == len(names)
    for name in names:
        assert getattr(remote_fetch, name) is not None
    assert set(names) <= set(dir(remote_fetch))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(remote_fetch, "no_such_name")  # noqa: B009

"""The cost of an import: `import remote_fetch` loads only the names that are used.

Rules of the file:

- Every import happens in a fresh process, because this process has loaded everything.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from importlib import import_module, metadata
from types import ModuleType

import pytest

import remote_fetch

EXTRAS = frozenset(
    {"adlfs", "azure", "boto3", "botocore", "Crypto", "cryptography", "gcsfs", "google", "kafka", "prometheus_client"}
    | {"pyspark", "rich", "s3fs", "starlette", "uvicorn"}
)
HEAVY = frozenset({"confluent_kafka", "cramjam", "crc32c", "fsspec", "pyarrow", "zstandard"})
FOREIGN = frozenset({"aiokafka", "duckdb", "numpy", "pandas", "polars"})


def loaded_by(statement: str, *, packages: bool = True) -> set[str]:
    """The modules that a fresh interpreter has loaded after `statement`, and had not before; by default top-level."""
    code = (
        "import json, sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    names = json.loads(result.stdout)
    return {name.partition(".")[0] for name in names} if packages else set(names)


def test_import_is_light() -> None:
    loaded = loaded_by("import remote_fetch")
    assert "remote_fetch" in loaded
    assert loaded & (EXTRAS | HEAVY | FOREIGN) == set()


def test_values_and_errors_are_light() -> None:
    loaded = loaded_by("import remote_fetch.errors, remote_fetch.model, remote_fetch.fetch.spi, fetchers")
    assert loaded & (EXTRAS | HEAVY | FOREIGN) == set()


def test_no_public_name_needs_an_extra() -> None:
    """One process loads all names: if any of them needs an extra, it is among the loaded modules."""
    names = "; ".join(f"remote_fetch.{name}" for name in sorted(remote_fetch.__all__))
    loaded = loaded_by(f"import remote_fetch; {names}")
    assert {"confluent_kafka", "pyarrow"} <= loaded
    assert loaded & (EXTRAS | FOREIGN) == set()


@pytest.mark.parametrize("name", ["RemoteConsumer", "read_arrow"])
def test_bytes_without_types_need_no_functions_of_arrow(name: str) -> None:
    """They take 25 ms to load."""
    loaded = loaded_by(f"import remote_fetch; remote_fetch.{name}", packages=False)
    assert "pyarrow.lib" in loaded
    assert "pyarrow.compute" not in loaded


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


def test_the_version_is_that_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    assert remote_fetch.__version__ == metadata.version("remote-fetch")
    assert "__version__" in dir(remote_fetch)
    assert "importlib.metadata" not in loaded_by("import remote_fetch", packages=False)

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert not hasattr(remote_fetch, "__version__")


def test_no_public_name_is_hidden_by_a_module() -> None:
    """The import of `package.name` as a module replaces an attribute `name` of the package by the module."""
    hidden = []
    for module in [remote_fetch, *packages_of(remote_fetch)]:
        modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
        hidden += [f"{module.__name__}.{name}" for name in modules.intersection(getattr(module, "__all__", ()))]
    assert hidden == []


def packages_of(package: ModuleType) -> list[ModuleType]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [import_module(one.name) for one in found if one.ispkg]

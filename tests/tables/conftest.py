"""Closes what tests of tables leave open.

Rules of the file: none beside that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.catalog import sql


@pytest.fixture(autouse=True)
def _no_database_stays_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A table that a test changes opens its closed catalog again. Python 3.13 warns of databases that stay open."""
    engines: list[Any] = []
    create: Any = vars(sql)["create_engine"]

    def created(*args: Any, **options: Any) -> Any:
        engines.append(create(*args, **options))
        return engines[-1]

    monkeypatch.setattr(sql, "create_engine", created)
    yield
    for engine in engines:
        engine.dispose()

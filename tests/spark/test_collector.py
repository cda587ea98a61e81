"""The collector's rest in a worker of Spark: once, and nowhere else.

Rules of the file:

- No Spark is started.
- tests/spark/test_source.py shows that a worker's main module is the daemon.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from types import SimpleNamespace

import pytest

from remote_fetch.spark import collector


@pytest.mark.parametrize(("main", "times"), [("pyspark.daemon", 1), ("pyspark.worker", 0), ("pytest", 0)])
def test_a_worker_freezes_what_it_has_loaded_once(monkeypatch: pytest.MonkeyPatch, main: str, times: int) -> None:
    calls: list[None] = []
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name=main)))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(None))
    monkeypatch.setattr(collector, "_freeze", cache(collector._freeze.__wrapped__))
    collector.freeze_gc()
    collector.freeze_gc()
    assert len(calls) == times


def test_a_script_has_no_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(None))
    collector.freeze_gc()
    assert not calls

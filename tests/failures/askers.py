"""Threads that ask one question at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from remote_fetch.failures import shared_failure
from tests.eventually import eventually

__all__ = ["asked_by"]


def asked_by(monkeypatch: pytest.MonkeyPatch, threads: int) -> Callable[[], bool]:
    """Waits until so many threads have asked a `SharedQuestion`. Each looks at the clock before it waits."""
    looks: list[float] = []

    def clock() -> float:
        looks.append(time.monotonic())
        return looks[-1]

    monkeypatch.setattr(shared_failure, "time", SimpleNamespace(monotonic=clock))
    return lambda: eventually(lambda: len(looks) >= threads)

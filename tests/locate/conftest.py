"""Fixtures of the tests of locators."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look-up of a name takes 0.3 s, of which kafka-python warns."""
    look_up = socket.getaddrinfo

    def slowly(*arguments: Any, **more: Any) -> Any:
        time.sleep(0.3)
        return look_up(*arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)

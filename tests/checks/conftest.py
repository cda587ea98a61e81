"""The command line for tests of checks."""

from __future__ import annotations

from tests.cli.conftest import run

__all__ = ["run"]

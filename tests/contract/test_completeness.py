"""No method of the parent is left out: not by this suite, and by no name that RemoteConsumer gives up."""

from __future__ import annotations

import ast
from pathlib import Path

from confluent_kafka.cimpl import Consumer

from remote_fetch import RemoteConsumer
from tests.cases import each_of

_SPECIAL = ("__enter__", "__exit__", "__init__")


def called(folder: Path) -> set[str]:
    """Every method that the suite calls on something, or names as a string for a parametrised test."""
    found: set[str] = set()
    for file in folder.glob("test_*.py"):
        if file.name != Path(__file__).name:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    found.add(node.func.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return found


@each_of("name", [*_SPECIAL, *(name for name in dir(Consumer) if not name.startswith("_"))])
def test_every_method_is_under_contract(name: str) -> None:
    assert name in called(Path(__file__).parent)


def test_every_method_is_there() -> None:
    ours = {name for name in dir(RemoteConsumer) if not name.startswith("_")}
    theirs = {name for name in dir(Consumer) if not name.startswith("_")}
    assert ours - theirs == {"remote_metrics"}
    assert theirs <= ours

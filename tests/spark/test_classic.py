"""A classic session has a context. Over Spark Connect there is none, and what needs it does without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from remote_fetch.spark.budgets import tasks_at_once
from remote_fetch.spark.classic import context_of
from remote_fetch.spark.job_description import described


class Connected:
    """As a session of Spark Connect, where the attribute raises."""

    def __init__(self, **settings: str) -> None:
        self.conf = settings

    @property
    def sparkContext(self) -> Any:
        raise RuntimeError("not over Spark Connect")


def test_the_context_of_a_classic_session() -> None:
    session: Any = SimpleNamespace(sparkContext=object())
    assert context_of(session) is session.sparkContext


@pytest.mark.parametrize(("given", "count"), [("8", 8), ("0", None), ("many", None), ("", None)])
def test_a_session_without_a_context(given: str, count: int | None) -> None:
    """It has no descriptions, and the number of its tasks is that of a setting."""
    session: Any = Connected(**{"spark.default.parallelism": given})
    assert context_of(session) is None
    with described(session, "a text"):
        pass
    assert tasks_at_once(session) == count

"""The checker of consumer groups finds each kind of breach, and reports no correct run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.cases import each_of
from tests.rig.group_checker import (
    Assigned,
    Committed,
    Delivered,
    Event,
    Paused,
    Resumed,
    Revoked,
    Sought,
    Told,
    breaches,
)

P = ("t", 0)
VISIBLE = (0, 1, 2, 5, 6)
"""3 and 4 are a marker and an aborted record."""

Happening = Callable[[int], Event]


def told(offset: int, asked_before: int = 0) -> Happening:
    """The group's answer to another client, which asked right before it, or `asked_before` events before."""
    return lambda at_ns: Told(at_ns, P, offset, at_ns - asked_before)


def of(event: type, offset: int | None = None, member: str = "a") -> Happening:
    return partial(_made, event, offset, member)


def _made(event: type, offset: int | None, member: str, at_ns: int) -> Event:
    made: Event = event(at_ns, member, P) if offset is None else event(at_ns, member, P, offset)
    return made


def of_message(offset: int) -> Happening:
    return lambda at_ns: Committed(at_ns, "a", P, offset, of_message=True)


def given(*offsets: int, member: str = "a") -> list[Happening]:
    return [of(Delivered, offset, member) for offset in offsets]


def check(*happenings: Happening) -> list[str]:
    events = [happening(at_ns) for at_ns, happening in enumerate(happenings, 1)]
    return breaches(reversed(events), {P: VISIBLE})  # in whatever order they were collected


ALL = [of(Assigned, 0), *given(*VISIBLE)]


@pytest.mark.parametrize(
    "happenings",
    [
        ALL,
        [of(Assigned, 0), *given(0, 1, 2), of(Revoked), of(Assigned, 1, "b"), *given(1, 2, 5, 6, member="b")],
        [of(Assigned, 0), *given(0, 1, 2), of(Revoked), of(Assigned, 4, "b"), *given(5, 6, member="b")],
        [*ALL, of(Sought, 1), *given(1, 2, 5)],
        [of(Assigned, 0), of(Sought, 5), *given(5, 6)],
        [*ALL, of(Paused), of(Resumed), of(Sought, 6), *given(6)],
        [*ALL, of(Committed, 7), told(7), of(Sought, 2), told(3), told(5)],
        [*ALL, of(Committed, 7), of(Sought, 2), of(Committed, 2), of(Revoked), of(Assigned, 2, "b")],
        [*ALL, told(5), of(Committed, 7), told(5, asked_before=2)],
        [*ALL, of(Committed, 9), of_message(7), told(7)],
        [*ALL, of(Sought, 1), of(Committed, 7), told(7), *given(1, 2), told(3)],
        [of(Assigned, 0, "lost"), *ALL, *given(0, 1, member="lost")],
    ],
)
def test_what_a_group_may_do(happenings: list[Happening]) -> None:
    assert check(*happenings) == []


@each_of(
    ("happenings", "said"),
    [
        (ALL[:-1], "1 records were never delivered: [6]"),
        ([of(Assigned, 0), *given(0, 2, 1, 5, 6)], "1 was skipped"),
        ([of(Assigned, 0), *given(0, 1, 2, 6, 5)], "5 was skipped"),
        ([*ALL, *given(6)], "7 or more had to come"),
        ([*ALL, of(Revoked), of(Assigned, 5, "b"), *given(2, member="b")], "5 or more had to come"),
        ([*ALL, of(Sought, 5), *given(2)], "5 or more had to come"),
        ([*ALL, of(Sought, 1), *given(2)], "1 was skipped"),
        ([*ALL, of(Sought, 3), *given(4)], "it is not visible"),
        ([*ALL, of(Sought, 6), of(Paused), *given(6)], "it is paused"),
        ([*ALL, of(Revoked), *given(6)], "the member does not have the partition"),
        ([*ALL, *given(6, member="b")], "the member does not have the partition"),
        ([*ALL, of(Committed, 7), of(Committed, 6)], "went back from 7"),
        ([*ALL, told(7), told(6)], "went back from 7"),
        ([*ALL, of(Committed, 7), of_message(6)], "went back from 7"),
        ([*ALL, told(7), of(Revoked), of(Assigned, 6, "b"), *given(6, member="b")], "went back from 7"),
        ([*ALL, told(7), of(Sought, 2), told(1)], "went back from 7 (sought: 2)"),
        ([*ALL, of(Sought, 2), of(Committed, 7), told(1)], "went back from 7"),
        ([*ALL, of(Sought, 2), *given(2), of(Committed, 3), told(2)], "went back from 3"),
        ([*given(), of(Assigned, 5), *given(5, 6)], "3 committed records were not delivered: [0, 1, 2]"),
        (
            [of(Assigned, 0), *given(0, 1), of(Revoked), of(Assigned, 5, "b"), *given(5, 6), *ALL],
            "1 committed records were not delivered: [2]",
        ),
    ],
)
def test_what_it_may_not(happenings: list[Happening], said: str) -> None:
    found = check(*happenings)
    assert any(said in one for one in found), found

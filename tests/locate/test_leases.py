"""Leases: readers of a process share one object under a key, which is closed with its last user."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from remote_fetch.locate.leases import Leases, key_of


class Thing:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_one_thing_is_made_for_a_key_and_closed_with_its_last_user() -> None:
    leases: Leases[Thing] = Leases()
    first, second, other = leases.take("a", Thing), leases.take("a", Thing), leases.take("b", Thing)
    assert first is second
    assert other is not first
    leases.give_back("a")
    assert not first.is_closed
    leases.give_back("a")
    assert first.is_closed
    assert not other.is_closed
    leases.give_back("b")
    assert len(leases) == 0
    assert leases.take("a", Thing) is not first


def test_to_give_back_too_often_is_not_an_error() -> None:
    leases: Leases[Thing] = Leases()
    leases.give_back("a")
    assert len(leases) == 0


def test_a_forked_process_begins_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    leases: Leases[Thing] = Leases()
    of_parent = leases.take("a", Thing)
    leases._lock().acquire()  # by a thread that the child does not have
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert leases.take("a", Thing) is not of_parent
    leases.give_back("a")
    leases.give_back("a")
    assert not of_parent.is_closed


def callback(_: Any) -> None: ...


def another(_: Any) -> None: ...


BASE = {"bootstrap.servers": "a:9092", "sasl.username": "me", "sasl.password": "mine", "oauth_cb": callback}


def test_the_same_configuration_has_the_same_key() -> None:
    assert key_of(BASE) == key_of(dict(reversed(BASE.items())))


@pytest.mark.parametrize(
    "change",
    [
        {"bootstrap.servers": "b:9092"},
        {"sasl.username": "you"},
        {"sasl.password": "yours"},
        {"oauth_cb": another},
        {"client.id": "x"},
        {"socket.timeout.ms": 1},
    ],
)
def test_whatever_differs_makes_another_key(change: dict[str, str | int | Callable[[Any], None]]) -> None:
    assert key_of(BASE | change) != key_of(BASE)


def test_a_number_is_not_its_text() -> None:
    assert key_of({"a": 1}) != key_of({"a": "1"}) != key_of({"a": True})

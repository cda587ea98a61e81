"""The threads that decode: how many, which units they take, and when they begin and end."""

from __future__ import annotations

import threading

import pytest

from remote_fetch.errors import Cancelled
from remote_fetch.session import decode_pool
from remote_fetch.session.decode_pool import DecodePool
from tests.own_threads import watch_threads


def test_threads_begin_with_the_first_unit_and_end_with_the_pool() -> None:
    threads = watch_threads()
    pool = DecodePool(threads=1)
    assert threads() == []
    assert pool.submit(threading.get_ident).wait(10_000) != threading.get_ident()
    assert len(threads()) == 1
    pool.close()
    assert threads() == []


def test_a_small_unit_is_not_worth_it() -> None:
    pool = DecodePool(threads=1, min_bytes=1000)
    assert (pool.takes(999), pool.takes(1000)) == (False, True)


def test_without_threads_nothing_is_decoded_ahead() -> None:
    pool = DecodePool(threads=0, min_bytes=0)
    assert not pool.takes(1 << 30)
    assert pool.depth == 1
    pool.close()


def test_after_closing() -> None:
    pool = DecodePool(threads=1)
    pool.close()
    with pytest.raises(Cancelled):
        pool.submit(list).wait(10_000)


@pytest.mark.parametrize(("processors", "threads"), [(1, 0), (2, 2), (4, 4), (96, 4)])
def test_threads_by_the_number_of_processors(monkeypatch: pytest.MonkeyPatch, processors: int, threads: int) -> None:
    monkeypatch.setattr(decode_pool, "_processors", lambda: processors)
    pool = DecodePool()
    assert pool.depth == (threads + 2 if threads else 1)
    pool.close()

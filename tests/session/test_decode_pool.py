"""The threads that decode: how many, which units they take, and when they begin and end."""

from __future__ import annotations

import pytest

from remote_fetch.session import decode_pool
from remote_fetch.session.decode_pool import DecodePool


def test_there_is_no_thread_before_the_first_unit() -> None:
    pool = DecodePool(threads=2)
    assert pool.threads.count == 0
    pool.close()


def test_a_small_unit_is_not_worth_it() -> None:
    pool = DecodePool(threads=1, min_bytes=1000)
    assert (pool.takes(999), pool.takes(1000)) == (False, True)


def test_without_threads_nothing_is_decoded_ahead() -> None:
    pool = DecodePool(threads=0, min_bytes=0)
    assert not pool.takes(1 << 30)
    assert pool.depth == 1
    pool.close()


@pytest.mark.parametrize(("processors", "threads"), [(1, 0), (2, 2), (4, 4), (96, 4)])
def test_threads_by_the_number_of_processors(monkeypatch: pytest.MonkeyPatch, processors: int, threads: int) -> None:
    monkeypatch.setattr(decode_pool, "_processors", lambda: processors)
    pool = DecodePool()
    assert pool.depth == (threads + 2 if threads else 1)
    pool.close()


@pytest.mark.parametrize(
    ("max_bytes", "depth", "unit_bytes"),
    [(64 << 20, 4, 3584 << 10), (8 << 20, 2, 3584 << 10), (3 << 20, 1, 3 << 20), (1, 1, 1 << 20)],
)
def test_one_of_several_readers_has_fewer_and_smaller_units_ahead(max_bytes: int, depth: int, unit_bytes: int) -> None:
    pool = DecodePool(threads=2)
    share = pool.within(max_bytes)
    assert (share.depth, share.unit_bytes) == (depth, unit_bytes)
    assert (share.threads, share.memory) == (pool.threads, pool.memory)
    assert (pool.depth, pool.unit_bytes) == (4, 3584 << 10)
    pool.close()


def test_without_threads_a_share_is_no_larger() -> None:
    pool = DecodePool(threads=0)
    share = pool.within(64 << 20)
    assert (share.depth, share.unit_bytes) == (1, 1 << 20)
    pool.close()

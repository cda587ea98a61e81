"""Questions at the same time: whose words an error has that comes too late."""

from __future__ import annotations

import threading

import pytest

from remote_fetch.errors import StorageTimeout
from remote_fetch.session import parallel
from remote_fetch.session.parallel import result_of, threads


def test_questions_that_take_too_long_are_not_blamed_on_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not answer may have taken the time."""
    monkeypatch.setattr(parallel, "_TIMEOUT_MS", 0)
    given_up = threading.Event()
    with threads() as pool:
        late = pool.submit(given_up.wait)
        with pytest.raises(StorageTimeout, match="questions to the store or to brokers took longer than 0 s"):
            result_of(late)
        given_up.set()


def test_the_error_of_a_question_is_raised_as_it_is() -> None:
    def ask() -> None:
        raise StorageTimeout("no answer from the store within 5 ms")

    with threads() as pool, pytest.raises(StorageTimeout, match="no answer from the store within 5 ms"):
        result_of(pool.submit(ask))

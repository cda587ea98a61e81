"""Lookups of topics: in a thread of their own, none after `close`, and no error of one ends the others."""

from __future__ import annotations

import threading

import pytest

from remote_fetch.consumer.lookups import Lookups
from remote_fetch.errors import UnknownTopic
from tests.eventually import eventually
from tests.own_threads import watch_threads

_TIMEOUT_S = 60


class Topics:
    """Notes the lookups. They are answered once `may_answer` is set, that of the topic `gone` by `error`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self._error = error or UnknownTopic("the cluster has no topic 'gone'", topic="gone")
        self.asked: list[tuple[str, int]] = []
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def __call__(self, topic: str, number: int) -> None:
        self.asked.append((topic, number))
        self.is_asked.set()
        assert self.may_answer.wait(_TIMEOUT_S)
        if topic == "gone":
            raise self._error


class Panic(BaseException):
    """As pyo3 raises it for a panic of Rust."""


@pytest.mark.parametrize("error", [None, Panic("a bug")])
def test_a_request_does_not_wait_and_goes_on_after_an_error(error: BaseException | None) -> None:
    topics = Topics(error)
    Lookups(topics).request({"gone": 1, "t": 3})
    assert topics.is_asked.wait(_TIMEOUT_S)
    assert topics.asked == [("gone", 1)]
    topics.may_answer.set()
    assert eventually(lambda: topics.asked == [("gone", 1), ("t", 3)])


def test_no_lookup_begins_after_the_end() -> None:
    topics, running = Topics(), watch_threads()
    lookups = Lookups(topics)
    lookups.request({})
    assert running() == []
    lookups.request({"gone": 1, "t": 3})
    assert topics.is_asked.wait(_TIMEOUT_S)
    lookups.close()
    topics.may_answer.set()
    assert eventually(lambda: not running())
    assert topics.asked == [("gone", 1)]

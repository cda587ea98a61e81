"""Tests of `service.access`, which asks the brokers who may read.

It keeps answers for a limited time and in a limited number. Equal requests share one question to the brokers. Wrong
credentials are slowed down. Unknown credentials do not crowd out known ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from remote_fetch.service.access import Access, Allowed
from remote_fetch.service.credentials import Credentials
from remote_fetch.service.limits import Slowdown
from remote_fetch.service.refusals import Refusal
from remote_fetch.service.work import Workers
from remote_fetch.testing.log_builder import TOPIC_ID
from tests.clock import Clock
from tests.service.fakes import PASSWORD, SETTINGS, FakeBrokers

T = TypeVar("T")


def of(user: str, password: str = PASSWORD) -> Credentials:
    return Credentials("SCRAM-SHA-512", user, password)


class Bench:
    """An Access over fake brokers and a clock, in an event loop of its own."""

    def __init__(self, **settings: Any) -> None:
        self.brokers, self.clock = FakeBrokers(), Clock()
        self.outcomes: list[str] = []
        self._workers = Workers(8, "asks", 64)
        self.access = Access(
            self.brokers.ask,
            replace(SETTINGS, **settings),
            self._workers,
            slowdown=Slowdown(free=2, first_s=1.0, clock=self.clock),
            clock=self.clock,
            count=self.outcomes.append,
        )

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def runs() -> T:
            return await work()

        return asyncio.run(runs())

    def status(self, user: str, password: str = PASSWORD, topic: str = "topic", origin: str = "10.0.0.1") -> int:
        """200, or the status of the refusal."""
        try:
            allowed = self.run(lambda: self.access.may_read(of(user, password), topic, origin))
        except Refusal as refusal:
            return refusal.status
        assert allowed == Allowed("topic", TOPIC_ID, (0, 1))
        return 200

    def close(self) -> None:
        self.brokers.gate.set()
        self._workers.close()


@contextmanager
def bench(**settings: Any) -> Iterator[Bench]:
    made = Bench(**settings)
    try:
        yield made
    finally:
        made.close()


def test_a_yes_is_believed_for_its_time() -> None:
    with bench() as it:
        assert [it.status("alice"), it.status("alice")] == [200, 200]
        assert it.brokers.asked == [("alice", "topic")]
        it.brokers.readers.clear()
        it.brokers.describers.add("alice")
        it.clock.now_s += 29
        assert it.status("alice") == 200
        it.clock.now_s += 2
        assert it.status("alice") == 403  # the ACL was withdrawn
        assert it.outcomes == ["allowed", "forbidden"]


def test_a_no_is_believed_for_its_time() -> None:
    with bench() as it:
        assert [it.status("bob"), it.status("bob")] == [403, 403]
        assert len(it.brokers.asked) == 1
        it.brokers.readers.add("bob")
        it.clock.now_s += 6
        assert it.status("bob") == 200


def test_an_answer_is_that_of_its_topic_and_password() -> None:
    with bench() as it:
        assert it.status("alice") == 200
        assert it.status("alice", topic="absent") == 404
        assert it.status("alice", "wrong") == 401
        assert it.status("alice") == 200
        assert it.brokers.asked == [("alice", "topic"), ("alice", "absent"), ("alice", "topic")]


def test_wrong_credentials_are_wrong_for_every_topic() -> None:
    with bench() as it:
        assert [it.status("alice", "wrong", topic) for topic in ("topic", "b", "c")] == [401, 401, 401]
        assert len(it.brokers.asked) == 1


def test_no_answer_is_not_kept() -> None:
    with bench() as it:
        it.brokers.away = True
        assert [it.status("alice"), it.status("alice")] == [503, 503]
        assert len(it.brokers.asked) == 2
        it.brokers.away = False
        assert it.status("alice") == 200


def test_a_question_has_a_deadline() -> None:
    with bench(ask_timeout_s=0.05) as it:
        it.brokers.gate.clear()

        async def asked() -> int:
            with pytest.raises(Refusal) as caught:
                await it.access.may_read(of("alice"), "topic", "10.0.0.1")
            it.brokers.gate.set()
            return caught.value.status

        assert it.run(asked) == 503


def test_one_question_for_all_who_wait() -> None:
    with bench() as it:
        it.brokers.gate.clear()

        async def asked() -> list[Allowed]:
            waiting = [asyncio.create_task(it.access.may_read(of("alice"), "topic", "10.0.0.1")) for _ in range(50)]
            await asyncio.sleep(0.05)
            waiting.pop().cancel()  # one that gives up takes nothing from the others
            it.brokers.gate.set()
            return list(await asyncio.gather(*waiting))

        assert len(it.run(asked)) == 49
        assert len(it.brokers.asked) == 1


def test_a_name_with_wrong_passwords_is_slowed_and_others_are_not() -> None:
    with bench() as it:
        assert it.status("alice") == 200  # known before
        assert [it.status("alice", f"wrong{number}") for number in range(5)] == [401, 401, 401, 429, 429]
        assert it.status("carol") == 200
        it.clock.now_s += 40
        assert it.status("alice") == 200  # asked again: the brokers have taken these before
        assert [it.status("alice", f"guess{number}") for number in range(3)] == [401, 429, 429]
        assert it.status("alice", topic="absent") == 404


def test_a_stranger_elsewhere_does_not_lock_a_user_out() -> None:
    with bench() as it:
        statuses = [it.status("alice", f"wrong{number}", origin="10.6.6.6") for number in range(9)]
        assert statuses == [401] * 3 + [429] * 6
        assert it.status("alice") == 200


def test_a_token_without_a_name_slows_down_itself_alone() -> None:
    with bench() as it:

        def status(token: str) -> int:
            it.clock.now_s += 6  # a no is believed for less
            return it.status("", token)

        it.brokers.users[""] = PASSWORD
        it.brokers.readers.add("")
        assert [status("expired") for _ in range(7)] == [401, 401, 401, 401, 401, 401, 429]
        assert it.status("", PASSWORD) == 200
        assert not it.access._names


def test_different_passwords_at_once_are_not_all_asked() -> None:
    with bench() as it:
        it.brokers.gate.clear()
        shown = [of("alice", f"wrong{number}") for number in range(20)]

        async def asked() -> list[int]:
            waiting = [asyncio.create_task(it.access.may_read(one, "topic", "10.0.0.1")) for one in shown]
            await asyncio.sleep(0.05)
            it.brokers.gate.set()
            found = await asyncio.gather(*waiting, return_exceptions=True)
            return sorted(one.status for one in found if isinstance(one, Refusal))

        assert it.run(asked) == [401] * 2 + [429] * 18
        assert len(it.brokers.asked) == 2


def test_strangers_leave_room_for_those_who_are_known() -> None:
    names = [f"user{number}" for number in range(9)]
    with bench(asks=4, max_requests=16) as it:
        assert it.status("alice") == 200
        it.clock.now_s += 31
        it.brokers.gate.clear()
        it.brokers.held.update(names)

        async def asked() -> tuple[list[int], Allowed]:
            strangers = [asyncio.create_task(it.access.may_read(of(name, "x"), "topic", "10.0.0.1")) for name in names]
            await asyncio.sleep(0.05)
            known = await it.access.may_read(of("alice"), "topic", "10.0.0.1")
            it.brokers.gate.set()
            found = await asyncio.gather(*strangers, return_exceptions=True)
            return sorted(one.status for one in found if isinstance(one, Refusal)), known

        statuses, known = it.run(asked)
        assert known.name == "topic"
        assert statuses == [401] * 8 + [503]  # half of all requests may wait for it
        assert not it.access._names


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remote_fetch.service.access._MOST_ANSWERS", 10)
    with bench() as it:
        for number in range(30):
            it.status("alice", topic=f"absent{number}")
        assert len(it.access._kept) == 10
        assert len(it.access._taken) == 1
        assert not it.access._names
        assert not it.access._running


def test_the_key_is_that_of_the_process() -> None:
    with bench() as it, bench() as other:
        assert it.access.digest(of("alice")) == it.access.digest(of("alice"))
        assert it.access.digest(of("alice")) != other.access.digest(of("alice"))


def test_a_refusal_that_is_kept_holds_no_error() -> None:
    """An error holds the frames that it has passed, and in them the client of the question with its threads."""
    with bench() as it:
        statuses = [it.status("alice", "wrong"), it.status("bob"), it.status("alice", topic="absent")]
        assert [*statuses, it.status("bob")] == [401, 403, 404, 403]
        kept = [one.outcome for one in it.access._kept.values() if isinstance(one.outcome, Refusal)]
        assert len(kept) == 3
        assert [(one.__traceback__, one.__context__) for one in kept] == [(None, None)] * 3

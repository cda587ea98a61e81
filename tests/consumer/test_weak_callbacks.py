"""Callbacks whose object has the consumer: a forgotten consumer is collected, as the parent is."""

from __future__ import annotations

import gc
import json
import time
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from remote_fetch import RemoteConsumer
from remote_fetch.consumer.weak_callbacks import weakly
from remote_fetch.locate.metadata_replay import METADATA_TOPICS
from remote_fetch.observe import Notice

CONFIGURATION = {
    "bootstrap.servers": "127.0.0.1:1",
    "log_level": 0,
    "group.id": "g",
    "fetch.remote.enabled": True,
    "remote.storage.url": "memory://tier",
}
TOKENS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def token() -> tuple[str, float]:
    """One without a signature, which no server of these tests sees."""
    until_s = time.time() + 3600
    parts = ({"alg": "none"}, {"sub": "me", "iat": 0, "exp": int(until_s)})
    head, claims = (urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{head}.{claims}.", until_s


class Application:
    """Has a consumer that calls it, as its observer or by this key."""

    def __init__(self, key: str) -> None:
        self.events: list[object] = []
        more = {} if key == "observer" else {**TOKENS, "oauth_cb": lambda _: token(), key: self.give_token}
        watched: dict[str, Any] = {"observer": self.observe} if key == "observer" else {}
        self.consumer = RemoteConsumer({**CONFIGURATION, **more}, **watched)

    def observe(self, event: object) -> None:
        self.events.append(event)

    def give_token(self, _: str) -> tuple[str, float]:
        return token()


def comes(is_so: Callable[[], bool]) -> bool:
    """Whether something is so, once no thread calls the object of a callback or closes its session."""
    deadline_s = time.monotonic() + 60
    while not is_so() and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.01)
    return is_so()


@pytest.mark.parametrize("key", ["observer", "oauth_cb", "remote.locator.oauth_cb"])
def test_an_application_that_its_consumer_calls_is_collected(key: str) -> None:
    """Else its consumer would stay in the group for minutes, and its clients and threads for ever."""
    application = Application(key)
    application.consumer.assign([TopicPartition("t", 0, 5)])
    application.consumer.poll(0)
    reference = weakref.ref(application)
    del application
    assert comes(lambda: reference() is None)


def test_the_observer_is_called_as_long_as_there_is_the_consumer() -> None:
    application = Application("observer")
    try:
        gc.collect()
        assert application.consumer._remote is not None
        application.consumer._remote.session.observe(event := Notice("something"))
        assert application.events == [event]
    finally:
        application.consumer.close()


class Tokens:
    """Gives tokens to consumers."""

    def give(self, _: str) -> tuple[str, float]:
        return token()


def give_token(_: str) -> tuple[str, float]:
    return token()


@pytest.mark.parametrize("has_method", [False, True])
def test_consumers_with_the_same_callback_share_the_metadata_topic(has_method: bool) -> None:
    """The first consumer has made its client, which asks for tokens also after that consumer has gone."""
    tokens, before = Tokens(), len(METADATA_TOPICS)
    first, second = (
        RemoteConsumer({**CONFIGURATION, **TOKENS, "oauth_cb": tokens.give if has_method else give_token})
        for _ in range(2)
    )
    assert len(METADATA_TOPICS) == before + 1
    assert first._remote is not None
    of_client, gone = first._remote.session.config.librdkafka["oauth_cb"], weakref.ref(first)
    del first
    assert comes(lambda: gone() is None)
    assert of_client("") is not None
    second.close()
    assert comes(lambda: len(METADATA_TOPICS) == before)


def test_a_callback_that_python_cannot_hold_weakly() -> None:
    class Slotted:
        __slots__ = ()

        def __call__(self) -> str:
            return "called"

        def method(self) -> str:
            return "called"

    for callback in (slotted := Slotted(), slotted.method):
        assert weakly(callback) is callback


def test_another_callback_at_the_same_address_has_another_stand_in() -> None:
    stand_ins = []
    for number in range(50):

        def callback(number: int = number) -> int:
            return number

        stand_ins.append(weakly(callback))
        assert stand_ins[-1]() == number
        del callback
    assert len(set(stand_ins)) == 50
    assert stand_ins[0]() is None


def test_methods_of_two_objects_are_two_callbacks() -> None:
    """Even if the objects are equal: each consumer holds its own."""

    class Equal(Tokens):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    first, second = Equal(), Equal()
    assert weakly(first.give) == weakly(first.give) != weakly(second.give)

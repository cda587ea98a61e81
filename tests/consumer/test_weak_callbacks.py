"""Callbacks whose object has the consumer: a forgotten consumer is collected, as the parent is."""

from __future__ import annotations

import gc
import json
import time
import weakref
from base64 import urlsafe_b64encode
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
    """Has a consumer that calls it."""

    def __init__(self, *, observes: bool) -> None:
        self.events: list[object] = []
        more = {} if observes else {**TOKENS, "oauth_cb": self.give_token}
        watched: dict[str, Any] = {"observer": self.observe} if observes else {}
        self.consumer = RemoteConsumer({**CONFIGURATION, **more}, **watched)

    def observe(self, event: object) -> None:
        self.events.append(event)

    def give_token(self, _: str) -> tuple[str, float]:
        return token()


@pytest.mark.parametrize("observes", [False, True])
def test_an_application_that_its_consumer_calls_is_collected(observes: bool) -> None:
    """Else its consumer would stay in the group for minutes, and its clients and threads for ever."""
    application = Application(observes=observes)
    application.consumer.assign([TopicPartition("t", 0, 5)])
    application.consumer.poll(0)
    reference = weakref.ref(application)
    del application
    deadline_s = time.monotonic() + 60
    while reference() is not None and time.monotonic() < deadline_s:  # a thread may be calling it
        gc.collect()
        time.sleep(0.01)
    assert reference() is None


def test_the_observer_is_called_as_long_as_there_is_the_consumer() -> None:
    application = Application(observes=True)
    try:
        gc.collect()
        assert application.consumer._remote is not None
        application.consumer._remote.session.observe(event := Notice("something"))
        assert application.events == [event]
    finally:
        application.consumer.close()


def test_consumers_with_the_same_callback_share_the_metadata_topic() -> None:
    def give_token(_: str) -> tuple[str, float]:
        return token()

    before = len(METADATA_TOPICS)
    consumers = [RemoteConsumer({**CONFIGURATION, **TOKENS, "oauth_cb": give_token}) for _ in range(2)]
    try:
        assert len(METADATA_TOPICS) == before + 1
    finally:
        for consumer in consumers:
            consumer.close()


def test_a_callback_that_python_cannot_hold_weakly() -> None:
    class Slotted:
        __slots__ = ()

        def __call__(self) -> str:
            return "called"

    callback = Slotted()
    assert weakly(callback) is callback


def test_another_callback_at_the_same_address_has_a_stand_in_of_its_own() -> None:
    stand_ins = []
    for number in range(50):

        def callback(number: int = number) -> int:
            return number

        stand_ins.append(weakly(callback))
        assert stand_ins[-1]() == number
        del callback
    assert len(set(map(id, stand_ins))) == 50
    assert stand_ins[0]() is None

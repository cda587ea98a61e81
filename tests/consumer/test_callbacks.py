"""Callbacks of the application that raise, with a real librdkafka and its own cluster."""

from __future__ import annotations

import ctypes
import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition

import remote_fetch.session.brokers
from remote_fetch import RemoteConsumer
from remote_fetch.consumer.callbacks import Callbacks

RECORDS, ENOUGH = 40, 200


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A cluster in this process, with records in partition 0 of topic t."""
    producer = Producer({"bootstrap.servers": "unused:1", "test.mock.num.brokers": 1, "log_level": 2})
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    for number in range(RECORDS):
        producer.produce("t", str(number).encode(), partition=0)
    assert producer.flush(60) == 0
    yield f"127.0.0.1:{broker.port}"
    producer.purge()  # it has the cluster


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_no_record_is_lost_if_callbacks_raise(bootstrap: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And `close` ends: a record that librdkafka forgets would hold its partition."""
    monkeypatch.setattr(remote_fetch.session.brokers, "CLUSTER_TIMEOUT_MS", 500)  # the cluster describes no topics
    calls = itertools.count()
    given: list[Message] = []

    def raises(_: str) -> None:
        if next(calls) % 2 and len(given) < RECORDS and errors < ENOUGH:
            raise ValueError("in stats_cb")

    consumer = RemoteConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "fetch.remote.enabled": "true",
            "statistics.interval.ms": 10,
            "fetch.message.max.bytes": 1_000,
            "stats_cb": raises,
        }
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    errors = 0
    while len(given) < RECORDS and errors < ENOUGH:
        time.sleep(0.02)  # statistics are due at each call
        try:
            given += consumer.consume(7, 0.05) if way == "consume" else filter(None, [consumer.poll(1.0)])
        except ValueError:
            errors += 1
    assert errors
    assert [message.offset() for message in given] == list(range(RECORDS))
    with suppress(ValueError):  # that of the last call
        consumer.close()


@pytest.mark.parametrize(("way", "error"), [("poll", ValueError), ("consume", SystemExit)])
def test_records_come_although_a_callback_closes_and_raises(
    bootstrap: str, way: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close commits the position after them. The next call raises the error, as if the consumer was open."""
    monkeypatch.setattr(remote_fetch.session.brokers, "CLUSTER_TIMEOUT_MS", 500)
    consumer = RemoteConsumer({"bootstrap.servers": bootstrap, "group.id": "g", "fetch.remote.enabled": "true"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    merge = consumer._remote.merge  # type: ignore[union-attr]
    librdkafka, callbacks = merge._librdkafka, consumer._remote.callbacks  # type: ignore[union-attr]

    def fails(*_: Any) -> None:
        consumer.close()
        raise error

    def during(call: Any, *arguments: Any) -> Any:
        """A callback runs in librdkafka's call, and then records come."""
        given = call(*arguments)
        if given:
            callbacks.guard(fails)()
        return given

    monkeypatch.setattr(merge, "_poll_librdkafka", partial(during, librdkafka.poll))
    monkeypatch.setattr(merge, "_librdkafka", SimpleNamespace(consume=partial(during, librdkafka.consume)))
    call = partial(consumer.consume, 1, 60) if way == "consume" else partial(consumer.poll, 60)
    given: Any = call()
    assert (given[0] if way == "consume" else given).offset() == 0
    assert consumer._remote is None
    with pytest.raises(error):
        call()
    consumer.close()


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_records_come_although_a_handler_raises_as_the_call_ends(
    bootstrap: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_fetch.session.brokers, "CLUSTER_TIMEOUT_MS", 500)
    consumer = RemoteConsumer({"bootstrap.servers": bootstrap, "group.id": "g", "fetch.remote.enabled": "true"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    remote = consumer._remote
    assert remote is not None
    call = partial(consumer.consume, 1, 60) if way == "consume" else partial(consumer.poll, 60)
    given: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(remote, "gate", ExitStack())
        remote.gate.callback(partial(next, iter(())))  # type: ignore[attr-defined]
        given += [call()]
    with pytest.raises(StopIteration):
        call()
    given += [call()]
    assert [(each[0] if way == "consume" else each).offset() for each in given] == [0, 1]
    consumer.close()


def test_a_handler_of_a_signal_raises_as_a_callback_begins() -> None:
    """The signal has come while librdkafka waited: it is sent here by a function in C, and another one goes on."""
    callbacks, calls = Callbacks(), list[int]()

    def callback(number: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            guarded(0)  # a callback runs in a callback

    def handler(number: int, _: object) -> None:
        raise TimeoutError(number)

    guarded = callbacks.guard(callback)
    libc = ctypes.CDLL(None)
    before = {number: signal.signal(number, handler) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    try:
        for sent in ([signal.SIGUSR1], [signal.SIGUSR2], [signal.SIGUSR1]):
            list(map(guarded, map(libc["raise"], sent)))
            with pytest.raises(TimeoutError, match=str(sent[0].value)):
                callbacks.raise_kept()
        with pytest.raises(TimeoutError):  # of two signals at once, the second one may come through
            list(map(guarded, map(libc["raise"], [signal.SIGUSR1]), map(libc["raise"], [signal.SIGUSR2])))
        guarded(7)
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    assert calls == [0, 0, 0, 0, 7]


def test_the_first_error_is_raised_unless_another_ends_the_program() -> None:
    callbacks = Callbacks()
    errors: list[BaseException] = [ValueError(), KeyboardInterrupt(), KeyError()]

    def fails(*_: Any) -> None:
        raise errors.pop(0)

    guarded = callbacks.guard_all({"on_commit": fails, "logger": SimpleNamespace(log=fails), "group.id": "g"})
    assert guarded["group.id"] == "g"
    guarded["on_commit"](None, [])
    guarded["logger"].log(20, "a line")
    guarded["on_commit"](None, [])
    with pytest.raises(KeyboardInterrupt):
        callbacks.raise_kept()
    callbacks.raise_kept()

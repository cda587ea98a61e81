"""RemoteConsumer switched off: every method is the parent's, with its arguments, its answer and its error.

The contract suite proves the same against a broker (`off` of tests/contract/kinds.py); this file needs none.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.cimpl import Consumer as Parent

from remote_fetch import RemoteConsumer
from remote_fetch.consumer import consumer as module
from tests.cases import each_of

PARTITION = TopicPartition("nowhere", 0, 5)
OFF = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "log_level": 0,
    "fetch.remote.enabled": "false",
    "remote.storage.url": "memory://bucket",
}
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "assign": (([PARTITION],), {}),
    "assignment": ((), {}),
    "close": ((), {}),
    "commit": ((), {"offsets": [PARTITION], "asynchronous": False}),
    "consume": ((7, 0.5), {}),
    "get_watermark_offsets": ((PARTITION,), {"timeout": 3, "cached": True}),
    "incremental_assign": (([PARTITION],), {}),
    "incremental_unassign": (([PARTITION],), {}),
    "pause": (([PARTITION],), {}),
    "poll": ((0.5,), {}),
    "position": (([PARTITION],), {}),
    "resume": (([PARTITION],), {}),
    "seek": ((PARTITION,), {}),
    "set_sasl_credentials": (("user", "password"), {}),
    "store_offsets": ((None, [PARTITION]), {}),
    "subscribe": ((["topic"],), {"on_assign": print, "on_revoke": len, "on_lost": repr}),
    "unassign": ((), {}),
    "unsubscribe": ((), {}),
}
"""Each method that RemoteConsumer replaces, with arguments."""
ANSWERING = {"assignment", "commit", "consume", "get_watermark_offsets", "poll", "position"}
"""Those that give something back; the parent's other methods give None."""


class Recorder(Parent):
    """Stands between RemoteConsumer and the parent: it notes each call and gives or raises what it was told to."""

    seen: list[tuple[str, tuple[Any, ...], dict[str, Any]]]
    answer: object


def _recording(name: str) -> Any:
    def method(self: Recorder, *args: Any, **kwargs: Any) -> Any:
        self.seen.append((name, args, kwargs))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    return method


for _name in CALLS:
    setattr(Recorder, _name, _recording(_name))


class Probe(RemoteConsumer, Recorder):
    """Its `super()` is the recorder."""


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
    """A consumer that is switched off, over a recorder."""
    monkeypatch.setattr(module, "_Consumer", Recorder)  # `poll` calls the parent by name
    made = Probe(OFF)
    made.seen, made.answer = [], None
    yield made
    Parent.close(made)


def bound(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, so that position and keyword are alike; None is as if it was not given."""
    signature = inspect.signature(getattr(RemoteConsumer, name))
    given = signature.bind(None, *args, **kwargs).arguments
    given.pop("self", None)
    return {key: value for key, value in given.items() if value is not None}


def test_every_method_that_is_replaced_is_in_the_table() -> None:
    replaced = {name for name in vars(RemoteConsumer) if hasattr(Parent, name) and not name.startswith("_")}
    assert replaced == set(CALLS)


@each_of("name", CALLS)
def test_the_parent_is_called_and_its_answer_is_given(probe: Probe, name: str) -> None:
    args, kwargs = CALLS[name]
    probe.seen, probe.answer = [], object()
    assert getattr(probe, name)(*args, **kwargs) is (probe.answer if name in ANSWERING else None)
    ((called, called_args, called_kwargs),) = probe.seen
    assert called == name
    assert bound(name, called_args, called_kwargs) == bound(name, args, kwargs)


@each_of("name", CALLS)
def test_the_parents_error_is_raised(probe: Probe, name: str) -> None:
    args, kwargs = CALLS[name]
    probe.answer = KafkaException("theirs")
    with pytest.raises(KafkaException) as caught:
        getattr(probe, name)(*args, **kwargs)
    assert caught.value is probe.answer


def test_there_is_no_remote_half() -> None:
    before = set(threading.enumerate())
    consumer = RemoteConsumer(OFF)
    try:
        assert consumer._remote is None
        assert {thread for thread in set(threading.enumerate()) - before if "remote" in thread.name} == set()
        assert {value for value in consumer.remote_metrics().values() if isinstance(value, int | float)} == {0}
        assert isinstance(consumer, Consumer)
    finally:
        consumer.close()

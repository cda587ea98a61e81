"""The facts that a session learns of brokers' own disks, and a session without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.errors import MissingExtra
from remote_fetch.locate import broker_channel
from remote_fetch.locate.cluster import Cluster
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.observe import Event, Notice
from remote_fetch.session import local_logs
from remote_fetch.session.local_logs import LocalLog, LocalLogs
from remote_fetch.session.session import Session

ONE, TWO = (TopicIdPartition(Uuid(bytes(16)), "t", number) for number in range(2))


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of a connection may wait for its turn on a busy machine."""
    monkeypatch.setattr(local_logs, "_CHANNEL_TIMEOUT_MS", 60_000)


class Channel:
    """A scripted channel."""

    closed = 0
    asked_sizes = 0
    has_failed = False

    def __init__(self, properties: Mapping[str, Any], *, timeout_ms: int, say: Any) -> None:
        assert properties["bootstrap.servers"] == "127.0.0.1:2"
        say("a reason")

    def local_starts(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        return {ONE: 7}

    def local_sizes(self, partitions: Sequence[TopicIdPartition]) -> dict[TopicIdPartition, int]:
        type(self).asked_sizes += 1
        return {TWO: 70}

    def close(self) -> None:
        type(self).closed += 1


def session(tmp_path: Path, said: list[str], when: str = "not-local") -> Session:
    def hear(event: Event) -> None:
        if isinstance(event, Notice):
            said.append(event.text)

    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "remote.storage.url": str(tmp_path),
        "remote.locator": "listing",
        "fetch.remote.when": when,
        "log_level": 0,
    }
    return Session.open(config, hear)


def test_starts_bounds_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_channel, "BrokerChannel", Channel)
    monkeypatch.setattr(Channel, "closed", 0)
    monkeypatch.setattr(Channel, "asked_sizes", 0)
    contact = property(lambda cluster: cluster.properties | {"bootstrap.servers": "127.0.0.1:2"})
    monkeypatch.setattr(Cluster, "contact_properties", contact)
    said: list[str] = []
    with session(tmp_path, said) as opened:
        said.clear()
        assert opened.local_starts([ONE, TWO]) == {ONE: 7}
        assert (Channel.closed, Channel.asked_sizes) == (1, 0)
        known = opened.local_logs.ask([ONE, TWO], "so be it", sizes=True)
    assert known == {ONE: LocalLog(7, None), TWO: LocalLog(None, 70)}
    assert (Channel.closed, Channel.asked_sizes) == (2, 1)
    assert said == [
        "a reason; records that they also have on their own disks come from the store as well"
    ]  # a reason is reported once


def test_brokers_that_have_failed_are_not_asked_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each topic of a consumer would wait for the whole timeout, one after the other, and again soon after."""
    asked: list[object] = []

    def fail(_: object, partitions: object, *__: object) -> None:
        asked.append(partitions)
        raise ValueError("an error of kafka-python")

    monkeypatch.setattr(broker_channel._AdminConnection, "starts", fail)
    with session(tmp_path, []) as opened:
        times = iter((0.0, 1.0, 60.9, 61.0, 62.0, 63.0, 64.0))  # the first question ends after a second
        assert opened.brokers is not None
        opened.local_logs = LocalLogs(opened.brokers.cluster, opened.observe, clock=lambda: next(times))
        for partition in (ONE, TWO):
            assert opened.local_starts([partition]) == {}
        assert asked == [[ONE]]
        assert opened.local_starts([ONE]) == {}
        assert asked == [[ONE], [ONE]]
        opened.set_sasl_credentials("me", "new")
        assert opened.local_starts([TWO]) == {}
        assert asked == [[ONE], [ONE], [TWO]]


def refused() -> None:
    raise ValueError("an error of kafka-python")


@pytest.mark.parametrize("case", ["a failure during an answer", "credentials during a failure"])
def test_questions_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """An older question neither ends the rest that a later one began, nor delays the new credentials."""
    asked: list[object] = []

    def ask(_: object, partitions: object, *__: object) -> dict[TopicIdPartition, int]:
        asked.append(partitions)
        (during if len(asked) == 1 else refused)()
        return {}

    def during() -> None:
        if case == "a failure during an answer":
            opened.local_starts([TWO])
        else:
            opened.set_sasl_credentials("me", "new")
            refused()

    monkeypatch.setattr(broker_channel._AdminConnection, "starts", ask)
    with session(tmp_path, []) as opened:
        for partition in (ONE, TWO):
            assert opened.local_starts([partition]) == {}
    assert asked == [[ONE], [TWO]]


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MissingExtra("it is not installed", extra="broker-api")

    monkeypatch.setattr(broker_channel, "BrokerChannel", refuse)
    said: list[str] = []
    with session(tmp_path, said) as opened:
        said.clear()
        assert opened.local_starts([ONE]) == {}
        assert said == [
            "it is not installed; records that they also have on their own disks come from the store as well"
        ]


def test_nobody_is_asked_without_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(broker_channel, "BrokerChannel")
    with session(tmp_path, [], when="always") as opened:
        assert opened.local_starts([ONE]) == {}
    with Session.open({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) as opened:
        assert opened.local_starts([ONE]) == {}, "no storage is configured: brokers give everything"
    with Session.open({"remote.storage.url": str(tmp_path)}) as opened:
        assert opened.local_logs.ask([ONE], "") == {}

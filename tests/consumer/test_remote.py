"""What the remote half does as partitions are assigned."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from remote_fetch.config import Config
from remote_fetch.consumer.metrics import Metrics
from remote_fetch.consumer.remote import Remote
from remote_fetch.consumer.settings import ConsumerSettings
from remote_fetch.observe import Event, Notice, ignore
from tests.consumer.fakes import FakeInner


@pytest.mark.parametrize("is_incremental", [False, True])
def test_an_assignment_that_comes_while_closing_asks_nobody(is_incremental: bool) -> None:
    remote, inner = Remote.__new__(Remote), FakeInner()
    remote._inner, remote.is_closing = inner, True
    remote.assign([TopicPartition("t", 0), TopicPartition("t", 1, 7)], is_incremental=is_incremental)
    how = "incremental_assign" if is_incremental else "assign"
    assert inner.taken() == [(how, [(0, -1001), (1, 7)])]


def test_an_observer_that_fails_costs_nobody_a_record(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """It is called in the threads that bring records."""

    def fails(event: Event) -> None:
        raise ValueError("a dashboard is down")

    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    remote = Remote(FakeInner(), settings, Metrics(), fails, nullcontext())
    try:
        remote.session.observe(Notice("something"))
    finally:
        remote.session.close()
    assert "an observer failed" in caplog.text


def test_closing_does_not_wait_for_a_broker_that_answers_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker may be asking it: its client is closed when that question is over."""
    monkeypatch.setattr("remote_fetch.consumer.remote._CLOSE_S", 0.05)
    settings = ConsumerSettings(True, {}, Config.parse({"remote.storage.url": str(tmp_path)}))
    remote = Remote(FakeInner(), settings, Metrics(), ignore, nullcontext())
    is_over, told, close = threading.Event(), threading.Event(), remote.session.close

    def closes() -> None:
        assert is_over.wait(60)
        close()
        told.set()

    monkeypatch.setattr(remote.session, "close", closes)
    monkeypatch.setattr(remote.session, "set_sasl_credentials", lambda username, password: closes())
    remote.set_sasl_credentials("me", "secret")
    remote.close()
    assert not told.is_set()
    is_over.set()
    assert told.wait(60)

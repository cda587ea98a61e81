"""The driver of a Spark read asks brokers that are away again, and refused credentials are an error at once."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import BrokerUnavailable, UnknownTopic
from remote_fetch.spark import backfill, backfill_job, batch, patience, plan, planning
from remote_fetch.spark.options import parse_options
from remote_fetch.spark.patience import ask_patiently

SILENT, TIMED_OUT = BrokerUnavailable("no broker answers"), KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)


def test_brokers_that_come_back() -> None:
    """The driver says so once, for either kind of silence."""
    said = Mock()
    assert ask_patiently(Mock(side_effect=[SILENT, TIMED_OUT, SILENT, 5]), said, away_s=60.0) == 5
    said.assert_called_once_with("no broker answers; still asking")


def test_brokers_that_stay_away() -> None:
    ask = Mock(side_effect=TIMED_OUT)
    with pytest.raises(BrokerUnavailable, match="no answer from the brokers: Local: Timed out") as raised:
        ask_patiently(ask, Mock(), away_s=0.0)
    assert raised.value.__cause__ is TIMED_OUT
    assert ask.call_count == 1


@pytest.mark.parametrize(
    "refusal",
    [
        BrokerUnavailable("no broker answers", is_refusal=True),
        KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
    ],
)
def test_a_refusal_is_not_waited_for(refusal: Exception) -> None:
    ask, said = Mock(side_effect=refusal), Mock()
    with pytest.raises(type(refusal)) as raised:
        ask_patiently(ask, said, away_s=60.0)
    assert raised.value is refusal
    assert (ask.call_count, said.call_count) == (1, 0)


def test_the_driver_of_a_batch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    plan = Mock(side_effect=[SILENT, TIMED_OUT, planning.JobPlan((), Mock())])
    monkeypatch.setattr(planning, "plan_batch", plan)
    options = parse_options({"subscribe": "t", "kafka.bootstrap.servers": "b:1"})
    assert batch.BatchReader(options, ()).partitions() == []
    assert plan.call_count == 3
    assert caplog.messages == ["no broker answers; still asking"]
    monkeypatch.setattr(patience, "BATCH_AWAY_S", 0.0)
    plan.side_effect = TIMED_OUT
    with pytest.raises(BrokerUnavailable):
        batch.BatchReader(options, ()).partitions()


def test_a_plan_alone_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Mock(side_effect=TIMED_OUT)
    monkeypatch.setattr(planning, "plan_batch", ask)
    with pytest.raises(BrokerUnavailable, match="no answer from the brokers: Local: Timed out"):
        plan({"subscribe": "t", "kafka.bootstrap.servers": "b:1"})
    assert ask.call_count == 1


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_the_driver_of_a_backfill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    ask = Mock(side_effect=[SILENT, TIMED_OUT, UnknownTopic("there is no topic 't'")])
    monkeypatch.setattr(backfill_job, "plan_backfill", ask)

    def run() -> None:
        backfill(Mock(), "t", to=tmp_path / "out", options={"kafka.bootstrap.servers": "b:1"}, format=form)

    with pytest.raises(UnknownTopic):
        run()
    assert ask.call_count == 3
    assert caplog.messages == ["no broker answers; still asking"]
    monkeypatch.setattr(backfill_job, "BATCH_AWAY_S", 0.0)
    ask.side_effect = TIMED_OUT
    with pytest.raises(BrokerUnavailable, match="no answer from the brokers: Local: Timed out"):
        run()

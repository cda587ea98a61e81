"""Callbacks of the configuration: statistics, errors, commits, the logger; and what they raise."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError

from tests.contract.kinds import Consumers
from tests.contract.material import Material, call_until_it_raises, offsets_of, poll_until, read


@pytest.mark.parametrize("start", [0, 110])
def test_statistics(consumers: Consumers, material: Material, start: int) -> None:
    heard: list[str] = []
    consumer = consumers(stats_cb=heard.append, statistics_interval_ms=50)
    consumer.assign([material.at(start)])
    read(consumer, 8)
    poll_until(consumer, "statistics", lambda: len(heard) > 1)
    found = json.loads(heard[-1])
    assert found["type"] == "consumer"
    assert "0" in found["topics"][material.topic]["partitions"]


def test_errors(consumers: Consumers) -> None:
    heard: list[KafkaError] = []
    consumer = consumers(error_cb=heard.append, bootstrap_servers="127.0.0.1:1")
    poll_until(consumer, "an error", lambda: heard)
    assert heard[0].code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_a_logger(consumers: Consumers) -> None:
    logger, lines = logging.getLogger("contract"), Lines()
    logger.addHandler(lines)
    make: Any = consumers.kind.consumer
    logger.propagate = False
    consumer = consumers.keep(
        make({**consumers.config(bootstrap_servers="127.0.0.1:1"), "log_level": 6}, logger=logger)
    )
    poll_until(consumer, "a line", lambda: any("127.0.0.1:1" in line for line in lines.lines))


@pytest.mark.parametrize("method", ["poll", "consume"])
@pytest.mark.parametrize("start", [50, 110])
def test_an_error_in_a_callback(consumers: Consumers, material: Material, method: str, start: int) -> None:
    """The call raises the error of the callback, and the consumer goes on."""
    calls: list[str] = []

    def tell(statistics: str) -> None:
        calls.append(statistics)
        if len(calls) == 1:
            raise ZeroDivisionError("in a callback")

    consumer = consumers(stats_cb=tell, statistics_interval_ms=100)
    consumer.assign([material.at(start)])
    consumer.pause([material.at()])
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        call_until_it_raises(lambda: consumer.poll(0.1) if method == "poll" else consumer.consume(1, 0.1))
    consumer.resume([material.at()])
    assert offsets_of(read(consumer, 5)) == [(0, offset) for offset in range(start, start + 5)]


def test_an_error_of_the_commit_callback(consumers: Consumers, material: Material) -> None:
    def on_commit(_: Any, __: Any) -> None:
        raise ZeroDivisionError("in a callback")

    consumer = consumers(on_commit=on_commit, enable_auto_commit=False)
    consumer.assign([material.at(50)])
    read(consumer, 1)
    consumer.commit()
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        call_until_it_raises(lambda: consumer.poll(0.1))


def test_the_consumer_in_its_own_callback(consumers: Consumers, material: Material) -> None:
    """A callback may ask the consumer that calls it."""
    found: list[int] = []

    def tell(_: str) -> None:
        if made and not found:
            found.extend(one.offset for one in made[0].position([material.at()]))

    made: list[Consumer] = []
    consumer = consumers(stats_cb=tell, statistics_interval_ms=50)
    consumer.assign([material.at(95)])
    read(consumer, 25)
    made.append(consumer)
    poll_until(consumer, "statistics", lambda: found)
    assert found == [material.end]

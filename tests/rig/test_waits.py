"""No call of the application waits for a broker that stands still.

Rules of the file:

- The broker's process is suspended, so its connections stay open and it does not answer.
- The asserted times are far above those of a busy machine, and far below those of a request for each partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition

from remote_fetch import RemoteConsumer
from remote_fetch.consumer.offsets import END
from tests.rig import topics
from tests.rig.rig import Rig
from tests.rig.test_read import config_of

PARTITIONS = 64
IMPATIENT = {"fetch.remote.connect.timeout.ms": 300, "fetch.remote.read.timeout.ms": 300}
"""After this time the partitions are handed over. The hand-over of each partition once waited for a second."""
_LONGEST_S = 30.0
_ALL_S = 30.0


def test_a_broker_that_stands_still_holds_no_call_up(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("waits")
    topics.create_topic(rig_43, topic, PARTITIONS)
    numbers = range(PARTITIONS)
    configuration = {
        **config_of(rig_43),
        **IMPATIENT,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "fetch.remote.enabled": True,
    }
    took: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> None:
        began_s = time.monotonic()
        call()
        took[name] = max(took.get(name, 0.0), time.monotonic() - began_s)

    consumer = RemoteConsumer(configuration)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    rig_43.nodes[1].pause()
    try:
        deadline_s = time.monotonic() + _ALL_S
        while consumer.remote_metrics()["remote-fetch-fallbacks-total"] < PARTITIONS and time.monotonic() < deadline_s:
            timed("poll", lambda: consumer.poll(0.2))
        timed("consume", lambda: consumer.consume(5, 0.2))
        partitions = [TopicPartition(topic, number) for number in numbers]
        timed("position", lambda: consumer.position(partitions))
        timed("pause", lambda: consumer.pause(partitions))
        timed("resume", lambda: consumer.resume(partitions))
        timed("seek", lambda: [consumer.seek(TopicPartition(topic, number, END)) for number in numbers])
        timed("assign", lambda: consumer.assign(partitions))
        timed("poll", lambda: consumer.poll(0.2))
        timed("close", consumer.close)
    finally:
        rig_43.nodes[1].resume()
    assert max(took.values()) < _LONGEST_S, took

"""One client beside a backfill, or the backfill: `python -m tests.benchmarks.neighbours TASK`, a JSON line out.

Rules of the file:

- A process pins itself to its processor before it makes a client.
- The live client measures each record from `produce` to the return of `poll`, by one clock.
- The backfill begins again when it has read everything. It reports its first record, and ends when its standard input
  gives a line.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.benchmarks.consumers import READERS, configured

__all__ = ["LIVE", "READY", "Task"]

LIVE, READY = "live", "ready"
_PAUSE_S = 0.005
_RECORD_BYTES = 100
_WARM_UP = 200
"""Records before those that count: connections are made and code is compiled."""
_TIMEOUT_S = 60
_NICE = 10


@dataclass(frozen=True, slots=True)
class Task:
    """Who it is (LIVE, or a reader of tests.benchmarks.consumers), on what topic, and on which processor."""

    who: str
    topic: str
    partitions: int
    seconds: float
    bootstrap: str
    remote: str
    processor: int


def live(task: Task) -> list[float]:
    """Milliseconds from producing a record to having it, two hundred times a second; sorted."""
    found: list[float] = []
    wanted = _WARM_UP + int(task.seconds / _PAUSE_S)
    consumer = Consumer(
        {"bootstrap.servers": task.bootstrap, "group.id": "live", "enable.auto.commit": False, "log_level": 2}
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(task.topic, 0), timeout=_TIMEOUT_S)
    consumer.assign([TopicPartition(task.topic, 0, end)])
    reading = threading.Thread(target=_measure, args=(consumer, wanted, found), daemon=True)
    reading.start()
    producer = Producer({"bootstrap.servers": task.bootstrap, "linger.ms": 0, "log_level": 2})
    for _ in range(wanted):
        producer.produce(task.topic, repr(time.perf_counter()).encode().ljust(_RECORD_BYTES), partition=0)
        producer.poll(_PAUSE_S)
    producer.flush(_TIMEOUT_S)
    reading.join(_TIMEOUT_S)
    if len(found) != wanted:
        raise TimeoutError(f"{len(found)} of {wanted} records came")
    return sorted(found[_WARM_UP:])


def _measure(consumer: Consumer, wanted: int, found: list[float]) -> None:
    deadline = time.monotonic() + 10 * _TIMEOUT_S
    while len(found) < wanted and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append((time.perf_counter() - float(message.value() or b"nan")) * 1e3)
    consumer.close()


def backfill(task: Task) -> float:
    """Millions of bytes of values a second, over all the time that it was let read."""
    os.nice(_NICE)
    value_bytes, began_s, is_ready = 0, time.perf_counter(), False
    while not _is_over():
        consumer = configured(READERS[task.who], task.bootstrap, task.remote, **{"enable.partition.eof": True})
        consumer.assign([TopicPartition(task.topic, number, 0) for number in range(task.partitions)])
        ended = 0
        while ended < task.partitions and not _is_over():
            messages = consumer.consume(10_000, 0.2)
            ended += sum(message.error() is not None for message in messages)
            value_bytes += sum([len(message.value() or b"") for message in messages if message.error() is None])
            if messages and not is_ready:
                is_ready = True
                print(READY, flush=True)
                value_bytes, began_s = 0, time.perf_counter()
        consumer.close()
    return value_bytes / (time.perf_counter() - began_s) / 1e6


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main() -> None:
    """Do the task that the first argument describes."""
    task = Task(**json.loads(sys.argv[1]))
    os.sched_setaffinity(0, {task.processor})
    print(json.dumps(live(task) if task.who == LIVE else backfill(task)))


if __name__ == "__main__":
    main()

"""One RemoteConsumer on many partitions of many topics, a slow store, and a broker that was restarted.

`python -m tests.benchmarks.bench_many_partitions --topics 10 100` prints a row for each number of topics.

Rules of the file:

- Every partition is tiered, and every GET takes as long as asked for.
- After the restart the leader epoch of each partition has moved on. So the consumer has to ask for all of them whether
  their logs still are those of the tier.
- The count that matters is that of records from the broker: there should be none.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer, TopicPartition

from remote_fetch import RemoteConsumer
from remote_fetch.observe import Event, Fallback
from tests.benchmarks.slow_store import LATENCY_OPTION
from tests.rig import topics
from tests.rig.rig import Rig, single

PARTITIONS_EACH = 10
RECORDS_EACH = 20
HEAD = (
    "| topics | partitions | GET ms | records | first record s | last record s | of the broker | fallbacks | GETs "
    "| threads |\n|" + "---|" * 10
)
_TIMEOUT_S = 600
_TIERED_S = 300


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one consumer. `threads` is the largest number of threads in its process."""

    records: int
    first_s: float
    last_s: float
    of_broker: int
    fallbacks: dict[str, int]
    gets: int
    threads: int


def names(count: int) -> list[str]:
    """The topics."""
    return [f"many-{count}-{number}" for number in range(count)]


def fill(rig: Rig, count: int, folder: Path) -> None:
    """Make and fill the topics, and wait until nothing of them is on the broker's own disk."""
    producer, dice = Producer({"bootstrap.servers": rig.bootstrap, "batch.size": 1500}), random.Random(1)
    for topic in names(count):
        topics.create_topic(rig, topic, PARTITIONS_EACH, segment_bytes=2048)
        for number in range(RECORDS_EACH * PARTITIONS_EACH):
            producer.produce(topic, partition=number % PARTITIONS_EACH, value=dice.randbytes(150))
        producer.flush(60)
    deadline_s = time.monotonic() + _TIERED_S
    while any(path.stat().st_size for path in folder.rglob(f"many-{count}-*/*.log") if "remote" not in path.parts):
        if time.monotonic() > deadline_s:
            raise TimeoutError("the topics are not tiered")
        time.sleep(1)


def measure(rig: Rig, count: int, latency_ms: int) -> Result:
    """Read all partitions from their beginning."""
    fallbacks: Counter[str] = Counter()

    def observe(event: Event) -> None:
        if isinstance(event, Fallback):
            fallbacks[event.reason] += 1

    wanted = count * PARTITIONS_EACH * RECORDS_EACH
    configuration = {
        "bootstrap.servers": rig.bootstrap,
        "group.id": f"many-{count}",
        "enable.auto.commit": False,
        "log_level": 0,
        "fetch.remote.enabled": True,
        "fetch.remote.when": "always",
        "remote.storage.url": str(rig.remote),
        "remote.storage.fetcher.class": "tests.benchmarks.slow_store:SlowLocalFetcher",
        f"remote.storage.options.{LATENCY_OPTION}": latency_ms,
    }
    records, first_s, threads = 0, 0.0, 0
    with RemoteConsumer(configuration, observer=observe) as consumer:
        began_s = time.monotonic()
        consumer.assign([TopicPartition(name, at, 0) for name in names(count) for at in range(PARTITIONS_EACH)])
        while records < wanted and time.monotonic() - began_s < _TIMEOUT_S:
            records += sum(message.error() is None for message in consumer.consume(500, 0.5))
            first_s = first_s or (time.monotonic() - began_s if records else 0.0)
            threads = max(threads, threading.active_count())
        last_s = time.monotonic() - began_s
        metrics = consumer.remote_metrics()
    of_broker, gets = metrics["broker-records-total"], metrics["remote-fetch-requests-total"]
    return Result(records, first_s, last_s, of_broker, dict(fallbacks), gets, threads)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--latency-ms", type=int, default=100)
    arguments = parser.parse_args()
    print(HEAD)
    for count in arguments.topics:
        with tempfile.TemporaryDirectory() as directory, single(Path(directory)) as rig:
            rig.wait_tier_ready()
            fill(rig, count, Path(directory))
            rig.restart()
            rig.wait_tier_ready()
            found = measure(rig, count, arguments.latency_ms)
        print(
            f"| {count} | {count * PARTITIONS_EACH} | {arguments.latency_ms} | {found.records} | {found.first_s:.1f} "
            f"| {found.last_s:.1f} | {found.of_broker} | {found.fallbacks or 0} | {found.gets} | {found.threads} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

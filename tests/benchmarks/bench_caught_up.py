"""RemoteConsumer beside its parent on topics of which nothing is tiered: the cost of a record that the broker gives.

`python -m tests.benchmarks.bench_caught_up --partitions 8 64 512`

Rules of the file:

- Both consumers have the same configuration, but for the keys of remote-fetch.
- What counts is the CPU of the calling thread, because nothing else differs, and librdkafka may wait for fetches.
- The first fifth of the records is not counted. By then librdkafka reads all partitions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.benchmarks.commands import printed
from tests.benchmarks.consumers import READERS, Reader, configured
from tests.benchmarks.document import machine
from tests.benchmarks.on_a_broker import add_options, run
from tests.benchmarks.peers import TUNED
from tests.rig import topics
from tests.rig.rig import Rig

HEAD = "| partitions | by | Consumer, ns a record | RemoteConsumer, ns a record | more, ns | times |\n|" + "---|" * 6
VALUE_BYTES = 100
_WAYS = {"poll": ("tuned, poll", "RemoteConsumer, poll"), "consume": ("tuned, consume", "RemoteConsumer, consume")}
_BATCH = 1_000
_TIMEOUT_S = 600


def fill(rig: Rig, partitions: int, records: int) -> str:
    """A topic whose records are in the active segments. Returns its name."""
    topic = f"caught-up-{partitions}"
    topics.create_topic(rig, topic, partitions, segment_bytes=1 << 30, local_retention_ms=-2)
    producer = Producer({"bootstrap.servers": rig.bootstrap, "queue.buffering.max.messages": records})
    for number in range(records):
        producer.produce(topic, b"v" * VALUE_BYTES, partition=number % partitions)
    if producer.flush(_TIMEOUT_S):
        raise TimeoutError(f"{topic} was not produced")
    return topic


def caller_ns(reader: Reader, rig_of: dict[str, str], topic: str, partitions: int, records: int) -> float:
    """CPU of the calling thread for each record but the first fifth, in nanoseconds."""
    consumer = configured(reader, rig_of["bootstrap"], rig_of["remote"], **TUNED)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    try:
        read = _take(consumer, records // 5, polls=reader.polls)
        began_ns = time.thread_time_ns()
        counted = _take(consumer, records - read, polls=reader.polls)
        return (time.thread_time_ns() - began_ns) / counted
    finally:
        consumer.close()


def _take(consumer: Consumer, wanted: int, *, polls: bool) -> int:
    deadline, taken = time.monotonic() + _TIMEOUT_S, 0
    while taken < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{taken} of {wanted} records")
        if polls:
            for _ in range(min(_BATCH, wanted - taken)):  # the clock above would take as long as a poll
                taken += consumer.poll(1.0) is not None
        else:
            taken += len(consumer.consume(min(_BATCH, wanted - taken), 1.0))
    return taken


def measured(rig: Rig, topic: str, partitions: int, records: int, rounds: int) -> dict[str, float]:
    """The least of each reader, each round in a process of its own, and the readers in turns."""
    least: dict[str, float] = {}
    for _ in range(rounds):
        for reader in (name for pair in _WAYS.values() for name in pair):
            job = {"bootstrap": rig.bootstrap, "remote": str(rig.remote)}
            given = json.dumps([reader, job, topic, partitions, records])
            seconds = printed("tests.benchmarks.bench_caught_up", "--one", given, timeout_s=2 * _TIMEOUT_S)
            least[reader] = min(least.get(reader, float("inf")), float(seconds))
    return least


def report(rig: Rig, partitions: Sequence[int], records: int, rounds: int) -> str:
    """The section."""
    rows = []
    for count in partitions:
        found = measured(rig, fill(rig, count, records), count, records, rounds)
        for way, (theirs, ours) in _WAYS.items():
            plain, remote = found[theirs], found[ours]
            rows.append(
                f"| {count} | {way} | {plain:,.0f} | {remote:,.0f} | {remote - plain:,.0f} | {remote / plain:.1f} |"
            )
            print(rows[-1], flush=True)
    return "\n".join([machine("confluent-kafka"), "", HEAD, *rows])


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="bench_caught_up", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.one is not None:
        name, job, topic, partitions, records = json.loads(arguments.one)
        print(caller_ns(READERS[name], job, topic, partitions, records))
        return 0
    return run(
        "bench_caught_up",
        arguments,
        HEAD,
        lambda rig: report(rig, arguments.partitions, arguments.records, arguments.rounds),
    )


if __name__ == "__main__":
    sys.exit(main())

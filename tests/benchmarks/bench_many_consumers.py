"""Many RemoteConsumers of one process that begin on a cluster with a large metadata topic.

Rules of the file:

- The metadata topic is that of `tests/benchmarks/metadata_topic.py`, with as many records as the command asks for.
- Its segments are in no store. So each consumer looks, finds an object missing, and reads from the broker.
- Three figures count: the time to the first record, the longest `poll(1.0)`, and the threads and memory of the process.
- Each number of consumers is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer, TopicPartition

from remote_fetch import RemoteConsumer
from tests.benchmarks.metadata_topic import MetadataTopic, metadata_topic

ROOT = Path(__file__).parents[2]
PARTITIONS_EACH = 20
RECORDS_EACH = 5
HEAD = (
    "| metadata records | consumers | last first record s | longest poll(1.0) s | threads | memory |\n"
    "|---|---|---|---|---|---|"
)
_BATCH_RECORDS = 1000
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Job:
    """How many consumers are to begin, and where."""

    bootstrap: str
    topic: str
    consumers: int
    store: str


@dataclass(frozen=True, slots=True)
class Result:
    """When the last of the consumers had its first record, and what the process took until then."""

    first_record_s: float
    longest_poll_s: float
    threads: int
    memory_mb: float


def measure(job: Job) -> Result:
    """Begin with all consumers at once, each in a thread and with partitions of its own."""
    firsts, polls = [0.0] * job.consumers, [0.0] * job.consumers
    began_s = time.monotonic()

    def consume(number: int) -> None:
        configuration = {
            "bootstrap.servers": job.bootstrap,
            "group.id": f"many-{number}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "fetch.remote.enabled": True,
            "remote.storage.url": job.store,
        }
        first = number * PARTITIONS_EACH
        with RemoteConsumer(configuration) as consumer:
            numbers = range(first, first + PARTITIONS_EACH)
            consumer.assign([TopicPartition(job.topic, partition, 0) for partition in numbers])
            while not firsts[number] and time.monotonic() - began_s < _TIMEOUT_S:
                asked_s = time.monotonic()
                message = consumer.poll(1.0)
                polls[number] = max(polls[number], time.monotonic() - asked_s)
                if message is not None:
                    firsts[number] = time.monotonic() - began_s
            ready.wait(_TIMEOUT_S)  # the others are measured with this one still there

    ready = threading.Barrier(job.consumers + 1)
    threads = [threading.Thread(target=consume, args=(number,)) for number in range(job.consumers)]
    for thread in threads:
        thread.start()
    most_threads = 0
    while ready.n_waiting < job.consumers:
        time.sleep(0.05)
        most_threads = max(most_threads, _status("Threads"))
    memory_mb = _status("VmHWM") / 1024
    ready.wait(_TIMEOUT_S)
    for thread in threads:
        thread.join(_TIMEOUT_S)
    return Result(max(firsts), max(polls), most_threads, memory_mb)


def _status(name: str) -> int:
    """A number of this process's, as Linux tells it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def run(job: Job) -> Result:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_many_consumers", "--job", json.dumps(asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=2 * _TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def fill(topic: MetadataTopic) -> None:
    """A few records for each partition of the wanted topic."""
    producer = Producer({"bootstrap.servers": topic.bootstrap, "log_level": 0})
    for partition in topic.wanted:
        for number in range(RECORDS_EACH):
            producer.produce(partition.topic, b"%d" % number, partition=partition.partition)
    if producer.flush(_TIMEOUT_S):
        raise TimeoutError("not all records were delivered")


def report(records: int, consumers: list[int]) -> list[str]:
    """The lines of one size."""
    lines = []
    with (
        tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as folder,
        metadata_topic(Path(folder), records, batch_records=_BATCH_RECORDS) as topic,
    ):
        fill(topic)
        store = Path(folder) / "store"
        store.mkdir()
        for count in consumers:
            found = run(Job(topic.bootstrap, topic.wanted[0].topic, count, str(store)))
            lines.append(
                f"| {records:,} | {count} | {found.first_record_s:.1f} | {found.longest_poll_s:.2f} "
                f"| {found.threads} | {found.memory_mb:,.0f} MB |"
            )
            print(f"{lines[-1]} load average {os.getloadavg()[0]:.1f}", flush=True)
    return lines


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000], metavar="N", help="metadata records")
    parser.add_argument("--consumers", type=int, nargs="+", default=[1, 20], metavar="N", help="of one process")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(asdict(measure(Job(**json.loads(arguments.job))))))
        return
    print(HEAD)
    for records in arguments.sizes:
        report(records, arguments.consumers)


if __name__ == "__main__":
    main()

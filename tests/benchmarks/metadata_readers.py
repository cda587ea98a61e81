"""One reader of the metadata topic in a process of its own: `python -m tests.benchmarks.metadata_readers JOB`.

Rules of the file:

- A reader begins with nothing, not even a client, and ends with the wanted topic's segments.
- It reads the same metadata partitions to the same ends as the others.
- It prints a JSON line with the time and the growth of its memory.
- Importing modules is not counted.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from remote_fetch.locate.client_properties import consumer_properties
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.metadata_replay import METADATA_TOPIC, MetadataTopic
from remote_fetch.locate.metadata_topic import MetadataTopicLocator
from remote_fetch.model import IsolationLevel, Uuid
from remote_fetch.prepare.job import plan_job
from remote_fetch.session.session import Session

__all__ = ["READERS", "Job", "Result"]

_TIMEOUT_MS = 120_000


@dataclass(frozen=True, slots=True)
class Job:
    """The task of a reader.

    - `ends` are the ends (exclusive) of the metadata partitions that matter to the topic, for readers that do not ask.
    - `remote` is the directory of the tier, for readers that plan.
    """

    reader: str
    bootstrap: str
    topic: str
    topic_id: str = ""
    ends: Mapping[str, int] = field(default_factory=dict)
    remote: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a reader. CPU time is that of all threads of the process, growth that of its peak memory."""

    segments: int
    wall_s: float
    cpu_s: float
    growth_mb: float


def with_locator(job: Job) -> int:
    """The product: from its construction to the timelines of all partitions of the topic."""
    cluster = Cluster({"bootstrap.servers": job.bootstrap}, timeout_ms=_TIMEOUT_MS)
    said: list[str] = []
    locator = MetadataTopicLocator(cluster, MetadataTopic(cluster, timeout_ms=_TIMEOUT_MS), say=said.append)
    timelines = [locator.timeline(partition) for partition in locator.partitions(job.topic)]
    if said:
        raise RuntimeError("; ".join(said))
    segments = sum(len(timeline.segments) for timeline in timelines)
    cluster.close()
    return segments


def first_plan(job: Job) -> int:
    """The product: from opening a session to the plan of the whole topic."""
    config = {"bootstrap.servers": job.bootstrap, "remote.storage.url": job.remote}
    with Session.open(config) as session:
        isolation = IsolationLevel.READ_UNCOMMITTED
        plans = plan_job(session, job.topic, start="earliest", end="latest", partitions=None, isolation=isolation)
        return sum(len(plan.steps) for plan in plans)


def _messages(job: Job) -> Iterator[Any]:
    """The records, as a plain loop around a consumer gets them."""
    properties = {"bootstrap.servers": job.bootstrap}
    consumer = Consumer(consumer_properties(properties, IsolationLevel.READ_UNCOMMITTED))
    consumer.assign([TopicPartition(METADATA_TOPIC, int(number), 0) for number in job.ends])
    left = sum(job.ends.values())
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} records are missing")
        for message in consumer.consume(min(left, 10_000), timeout=0.2):
            if message.error() is None:
                left -= 1
                yield message
    consumer.close()


def only_consume(job: Job) -> int:
    """The floor: every value is asked for, and none looked at."""
    for message in _messages(job):
        message.value()
    return 0


def with_struct(job: Job) -> int:
    """The plain way: `struct`, dictionaries, no check. Only the records of the wanted topic are decoded."""
    wanted = Uuid.parse(job.topic_id).raw
    segments: dict[bytes, dict[str, Any]] = {}
    for message in _messages(job):
        value = message.value()
        at = 3 + value[3]
        if value[at : at + 16] != wanted:
            continue
        (partition,) = struct.unpack_from(">i", value, at + 16)
        segment_id = value[at + 21 : at + 37]
        at += 38
        if value[1] == 0:
            start, end, broker, latest, told = struct.unpack_from(">qqiqq", value, at)
            at += 37
            epochs = [struct.unpack_from(">iq", value, at + 13 * number) for number in range(value[at - 1] - 1)]
            (size,) = struct.unpack_from(">i", value, at + 13 * len(epochs))
            segments[segment_id] = {
                "partition": partition, "start": start, "end": end, "broker": broker, "max_timestamp": latest,
                "event_timestamp": told, "epochs": epochs, "size": size, "state": 0,
            }  # fmt: skip
        elif segment_id in segments:
            broker, told = struct.unpack_from(">iq", value, at)
            segments[segment_id] |= {"broker": broker, "event_timestamp": told, "state": value[-2]}
    found = [segment for segment in segments.values() if segment["state"] == 1]
    found.sort(key=lambda segment: (segment["partition"], segment["start"]))
    return len(found)


READERS: Mapping[str, Callable[[Job], int]] = MappingProxyType(
    {
        "remote-fetch": with_locator,
        "first plan": first_plan,
        "consume only": only_consume,
        "struct loop": with_struct,
    }
)


def _peak_mb() -> float:
    """The peak of this process's own memory, as Linux tells it; 0 elsewhere."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1e3 if found else 0.0


def main() -> None:
    """Read once and print the result."""
    job = Job(**json.loads(sys.argv[1]))
    before_mb, cpu_s, wall_s = _peak_mb(), time.process_time(), time.monotonic()
    segments = READERS[job.reader](job)
    wall_s, cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
    print(json.dumps(asdict(Result(segments, wall_s, cpu_s, _peak_mb() - before_mb))))


if __name__ == "__main__":
    main()

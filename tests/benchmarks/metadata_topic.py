"""Reading the metadata topic of a real broker, beside named peers: `python -m tests.benchmarks.metadata_topic`.

Rules of the file:

- If many records are read, the broker's own tiering is off. So no other client writes to the topic or reads it.
- The records are those that brokers write for a copied segment: an upload and its end. They are of ten topics in any
  mixture, each in its own metadata partition.
- Every reader is a process of its own. The readers take turns, and the least of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from remote_fetch.formats.metadata_partitioner import metadata_partition
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.metadata_replay import METADATA_TOPIC
from remote_fetch.model import RemoteLogSegmentId, TopicIdPartition, Uuid
from tests.benchmarks.bench_metadata import RECORDS_PER_SEGMENT, TOPICS, upload
from tests.benchmarks.commands import printed
from tests.benchmarks.metadata_readers import Job, Result
from tests.rig.rig import Rig, single
from tests.rig.topics import QUIET, admin, make_tiered

__all__ = ["MetadataTopic", "metadata_topic", "run"]

METADATA_PARTITIONS = 50
"""As many as Kafka makes by default."""
PARTITIONS = 400
"""Of each data topic: enough that what one topic needs lies in all metadata partitions."""
READERS = ("consume only", "struct loop", "remote-fetch")
HEAD = "| reader | records | segments | CPU s | / consume only | wall s | memory |\n|---|---|---|---|---|---|---|"
_TIMEOUT_S = 60
_READ_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class MetadataTopic:
    """Where it is, the partitions of the wanted data topic, and the ends of its own partitions."""

    rig: Rig
    bootstrap: str
    wanted: tuple[TopicIdPartition, ...]
    ends: dict[int, int]

    def job(self, reader: str) -> Job:
        """To read what matters to the wanted topic."""
        numbers = {metadata_partition(one.topic_id, one.partition, len(self.ends)) for one in self.wanted}
        ends = {str(number): self.ends[number] for number in sorted(numbers) if self.ends[number]}
        return Job(reader, self.bootstrap, self.wanted[0].topic, str(self.wanted[0].topic_id), ends)


def run(job: Job) -> Result:
    """Do a job in a process of its own."""
    given = json.dumps(asdict(job))
    return Result(**json.loads(printed("tests.benchmarks.metadata_readers", given, timeout_s=_READ_TIMEOUT_S)))


@contextmanager
def metadata_topic(folder: Path, records: int, *, batch_records: int, secured: bool = False) -> Iterator[MetadataTopic]:
    """A broker with the records of ten topics, in batches of at most `batch_records`. `secured`: as `single`."""
    properties = {"remote.log.storage.system.enable": "false"}
    with single(folder, properties=properties, secured=secured, full_compiler=True) as rig:
        _create(rig, METADATA_TOPIC, METADATA_PARTITIONS)
        dice = random.Random(7)
        data = []
        for number in range(TOPICS):
            name = f"orders-of-region-{number}"
            if number == 0:
                _create(rig, name, PARTITIONS)
            # The others need not exist: nobody asks the broker about them.
            topic_id = _topic_id(rig, name) if number == 0 else Uuid(dice.randbytes(16))
            data.append(tuple(TopicIdPartition(topic_id, name, one) for one in range(PARTITIONS)))
        yield MetadataTopic(rig, rig.bootstrap, data[0], _fill(rig, data, records, batch_records))


def _create(rig: Rig, name: str, partitions: int) -> None:
    client = admin(rig)
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(_TIMEOUT_S)
    rig.until(f"topic {name}", lambda: name in client.list_topics(timeout=_TIMEOUT_S).topics)


def _topic_id(rig: Rig, name: str) -> Uuid:
    cluster = Cluster({"bootstrap.servers": rig.bootstrap, **QUIET}, timeout_ms=_TIMEOUT_S * 1000)
    found = cluster.describe(name).topic_id
    cluster.close()
    if found is None:
        raise RuntimeError(f"{name} has no id")
    return found


def _fill(rig: Rig, data: list[tuple[TopicIdPartition, ...]], records: int, batch_records: int) -> dict[int, int]:
    """Write the records; the ends of the metadata partitions."""
    producer = Producer(
        {
            "bootstrap.servers": rig.bootstrap,
            "linger.ms": 50,
            "batch.num.messages": batch_records,
            "queue.buffering.max.messages": 200_000,
            **QUIET,
        }
    )
    dice = random.Random(1)
    ends = dict.fromkeys(range(METADATA_PARTITIONS), 0)
    next_offsets: dict[TopicIdPartition, int] = {}
    for number in range(0, records, 2):
        where = dice.choice(dice.choice(data))
        place = metadata_partition(where.topic_id, where.partition, METADATA_PARTITIONS)
        first = next_offsets.get(where, 0)
        next_offsets[where] = first + RECORDS_PER_SEGMENT
        for value in upload(RemoteLogSegmentId(where, Uuid(dice.randbytes(16))), first, number):
            _produce(producer, place, value)
            ends[place] += 1
    if producer.flush(_READ_TIMEOUT_S):
        raise TimeoutError("not all records were delivered")
    return ends


def _produce(producer: Any, place: int, value: bytes) -> None:
    while True:
        try:
            producer.produce(METADATA_TOPIC, value=value, partition=place)
            return
        except BufferError:
            producer.poll(0.1)


def replays(records: int, rounds: int, batch_records: int) -> list[str]:
    """The lines of the table."""
    with (
        tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as folder,
        metadata_topic(Path(folder), records, batch_records=batch_records) as topic,
    ):
        runs: dict[str, list[Result]] = {reader: [] for reader in READERS}
        for _ in range(rounds):
            for reader in READERS:
                runs[reader].append(run(topic.job(reader)))
                _progress(f"{reader}: {runs[reader][-1]}")
        count = sum(topic.job("").ends.values())
    best = {reader: _best(found) for reader, found in runs.items()}
    floor_s = best[READERS[0]].cpu_s
    return [
        f"| {reader} | {count:,} | {found.segments:,} | {found.cpu_s:.2f} | {found.cpu_s / floor_s:.1f} "
        f"| {found.wall_s:.2f} | {found.growth_mb:,.0f} MB |"
        for reader, found in best.items()
    ]


def _best(results: list[Result]) -> Result:
    """The least of each, in whichever round."""
    return Result(
        results[0].segments,
        min(result.wall_s for result in results),
        min(result.cpu_s for result in results),
        min(result.growth_mb for result in results),
    )


def first_answer(rounds: int) -> str:
    """How long it takes from nothing to the first plan, on a broker that tiers."""
    properties = {"rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS)}
    with (
        tempfile.TemporaryDirectory(prefix="remote-fetch-bench-") as folder,
        single(Path(folder), properties=properties, full_compiler=True) as rig,
    ):
        make_tiered(rig, "orders", 600)
        times = {}
        for reader in ("remote-fetch", "first plan"):
            job = Job(reader, rig.bootstrap, "orders", remote=str(rig.remote))
            found = [run(job) for _ in range(rounds)]
            _progress(f"{reader}: {found}")
            times[reader] = min(result.wall_s for result in found) * 1000
        segments = run(Job("remote-fetch", rig.bootstrap, "orders")).segments
    return (
        f"From nothing to the timeline of a topic of one partition and {segments} segments: "
        f"{times['remote-fetch']:,.0f} ms; from opening a session to the first plan: {times['first plan']:,.0f} ms."
    )


def _progress(text: str) -> None:
    print(f"{text}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the section for docs/performance/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="of the metadata topic (default: 100000)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds, the best of which counts (default: 2)")
    parser.add_argument("--batch-records", type=int, default=1000, help="most records in a batch (default: 1000)")
    arguments = parser.parse_args()
    lines = replays(arguments.records, arguments.rounds, arguments.batch_records)
    load = f"Load average {os.getloadavg()[0]:.1f} when the last reader was done."
    print("\n".join([HEAD, *lines, "", load, "", first_answer(arguments.rounds)]))


if __name__ == "__main__":
    main()

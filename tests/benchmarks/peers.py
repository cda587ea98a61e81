"""One reader of a tiered topic in a process of its own: `python -m tests.benchmarks.peers JOB`, a JSON line out.

Rules of the file:

- A reader reads the whole topic from its first record, counts records and bytes of values, and does no more with them.
- It makes a new client for every round, as a job does. The first round warms up and does not count.
- CPU is that of this process, all threads, and that of the broker beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from remote_fetch.decode.columns import DEFAULT_COLUMNS
from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.formats.codecs import Codecs
from remote_fetch.locate.lineage import Lineage
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from remote_fetch.plan.ranges import SegmentSlice
from remote_fetch.scan.rows import PartitionRows
from remote_fetch.scan.slice_reader import SliceReader
from remote_fetch.session.decode_pool import DecodePool
from tests.benchmarks.slow_store import LATENCY_OPTION, SPEED_OPTION

__all__ = [
    "LARGE_FETCHES",
    "READERS",
    "TUNED",
    "Job",
    "Round",
    "Total",
    "broker_cpu_s",
    "decoded",
    "decoded_rows",
    "measure",
    "segments",
]

_LAST_OFFSET = 2**62
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Job:
    """The task: the topic, its size, the number of rounds, and the broker whose CPU counts.

    `remote` is the directory of the tier. Each of our GETs takes `latency_ms` until its first byte and has a speed of
    `bytes_per_second`, 0 for any speed; for readers of the broker, its plug-in does the same.
    """

    reader: str
    topic: str
    partitions: int
    records: int
    value_bytes: int
    rounds: int
    bootstrap: str
    remote: str
    broker_pid: int
    latency_ms: int = 0
    bytes_per_second: int = 0


class Total(NamedTuple):
    """The records that a reader has read."""

    records: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class Round:
    """One reading of the whole topic, in seconds. `caller_cpu_s`: as far as the calling thread took it."""

    records: int
    value_bytes: int
    wall_s: float
    client_cpu_s: float
    caller_cpu_s: float
    broker_cpu_s: float


def segments(remote: str | Path, topic: str) -> list[Path]:
    """The segment files of a topic in a directory that LocalTieredStorage wrote, in order of partition and offset."""
    return sorted(Path(remote).rglob(f"{topic}-*/*.log"))


def _value_bytes(batch: pa.RecordBatch) -> int:
    values: Any = batch.column("value")
    return int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _arrow(job: Job, config: Mapping[str, Any]) -> Total:
    import remote_fetch

    records = value_bytes = 0
    store = {"remote.storage.url": job.remote, **_slow(job)}
    for batch in remote_fetch.read_arrow(job.topic, config={**store, **config}):
        records += batch.num_rows
        value_bytes += _value_bytes(batch)
    return Total(records, value_bytes)


def _slow(job: Job) -> Mapping[str, Any]:
    """The configuration of a slow store, none for a fast one."""
    if not job.latency_ms:
        return {}
    options = "remote.storage.options."
    return {
        "remote.storage.fetcher.class": "tests.benchmarks.slow_store:SlowLocalFetcher",
        f"{options}{LATENCY_OPTION}": job.latency_ms,
        f"{options}{SPEED_OPTION}": job.bytes_per_second,
    }


def from_bucket(job: Job) -> Total:
    """`read_arrow` with the bucket alone."""
    return _arrow(job, {})


def from_store(job: Job) -> Total:
    """`read_arrow` with brokers: they say where segments are, where the log starts, and whether one may read."""
    return _arrow(job, {"bootstrap.servers": job.bootstrap})


def decoder_alone(job: Job) -> Callable[[], Total]:
    """The segments' bytes, already in memory, to record batches: as fast as reading could be in one thread."""
    files = [memoryview(path.read_bytes()) for path in segments(job.remote, job.topic)]

    def run() -> Total:
        codecs, records, value_bytes = Codecs(), 0, 0
        for data in files:
            for batch in decoded([data], codecs, job.topic, DEFAULT_COLUMNS):
                records += batch.num_rows
                value_bytes += _value_bytes(batch)
        return Total(records, value_bytes)

    return run


def decoded(
    pieces: Iterable[memoryview], codecs: Codecs, topic: str, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """As `decoded_rows`, as record batches."""
    for rows in decoded_rows(pieces, codecs, topic, columns):
        yield from rows.to_arrow()


def decoded_rows(
    pieces: Iterable[memoryview], codecs: Codecs, topic: str, columns: Sequence[str]
) -> Iterator[DecodedRows]:
    """The rows of one segment, whose bytes come in pieces, by the product's reader in one thread.

    A piece may change when the piece after the next one is asked for.
    """
    partition = TopicIdPartition(Uuid(bytes(16)), topic, 0)
    segment = RemoteLogSegmentMetadata(RemoteLogSegmentId(partition, Uuid(bytes(16))), 0, _LAST_OFFSET, 1)
    rows = PartitionRows(topic, 0, columns, Lineage.unknown(), None, 0)
    piece, pool = SegmentSlice(segment, 0, _LAST_OFFSET), DecodePool(threads=0)
    reader = SliceReader(piece, rows, codecs, pool, position=0, max_batch_bytes=128 << 20)
    for data in pieces:
        yield from reader.feed(data)
    yield from reader.finish()
    yield from rows.flush()


TUNED: Mapping[str, Any] = MappingProxyType({"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10})
LARGE_FETCHES: Mapping[str, Any] = MappingProxyType({**TUNED, "fetch.message.max.bytes": 8 << 20})
"""Settings that make confluent_kafka faster: a larger queue without a pause when it is full, and larger fetches."""


def _confluent(job: Job, config: Mapping[str, Any]) -> Total:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": job.bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 2, **config}
    )
    records = value_bytes = 0
    try:
        consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
        deadline = time.monotonic() + _TIMEOUT_S
        while records < job.records and time.monotonic() < deadline:
            messages = consumer.consume(min(10_000, job.records - records), 1.0)
            records += len(messages)
            value_bytes += sum([len(message.value() or b"") for message in messages])
    finally:
        consumer.close()
    return Total(records, value_bytes)


def confluent_default(job: Job) -> Total:
    """`confluent_kafka.Consumer.consume` with its default configuration."""
    return _confluent(job, {})


def confluent_tuned(job: Job) -> Total:
    """As `confluent_default`, with a larger queue, and without the pause of a second if the queue is full."""
    return _confluent(job, TUNED)


def confluent_large_fetches(job: Job) -> Total:
    """As `confluent_tuned`, with fetches of 8 MiB."""
    return _confluent(job, LARGE_FETCHES)


def with_aiokafka(job: Job) -> Total:
    """`AIOKafkaConsumer.getmany`."""
    return asyncio.run(_aiokafka(job))


async def _aiokafka(job: Job) -> Total:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    records = value_bytes = 0
    await consumer.start()
    try:
        consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
        deadline = time.monotonic() + _TIMEOUT_S
        while records < job.records and time.monotonic() < deadline:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                records += len(messages)
                value_bytes += sum([len(message.value) for message in messages])
    finally:
        await consumer.stop()
    return Total(records, value_bytes)


def with_kafka_python(job: Job) -> Total:
    """`KafkaConsumer.poll`."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=job.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest", max_poll_records=10_000
    )
    records = value_bytes = 0
    try:
        consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
        deadline = time.monotonic() + _TIMEOUT_S
        while records < job.records and time.monotonic() < deadline:
            for messages in consumer.poll(1000).values():
                records += len(messages)
                value_bytes += sum([len(message.value) for message in messages])
    finally:
        consumer.close()
    return Total(records, value_bytes)


def with_kafkarrow(job: Job) -> Total:
    """`kafkarrow.ConsumerManager.poll`: librdkafka in Rust, with rows as Arrow batches."""
    import kafkarrow

    config = {"bootstrap.servers": job.bootstrap, "group.id": "bench", **{key: str(TUNED[key]) for key in TUNED}}
    manager = kafkarrow.ConsumerManager(config, [kafkarrow.SourceTopic.from_earliest(job.topic)], 100_000)
    records = value_bytes = 0
    deadline = time.monotonic() + _TIMEOUT_S
    while records < job.records and time.monotonic() < deadline:
        batch = manager.poll(1000)
        records += batch.num_rows
        value_bytes += _value_bytes(batch)
    return Total(records, value_bytes)


READERS: Mapping[str, Callable[[Job], Total]] = MappingProxyType(
    {
        "read_arrow, bucket alone": from_bucket,
        "read_arrow": from_store,
        "confluent, default": confluent_default,
        "confluent, tuned": confluent_tuned,
        "confluent, 8 MiB": confluent_large_fetches,
        "kafkarrow": with_kafkarrow,
        "aiokafka": with_aiokafka,
        "kafka-python": with_kafka_python,
    }
)
"""Every reader by the name it has in the table, but for the decoder alone, which has its bytes before it starts."""


def broker_cpu_s(pid: int) -> float:
    """User and system time of a process, all threads, to a hundredth of a second (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(job: Job, run: Callable[[], Total]) -> list[Round]:
    """A round to warm up, and the rounds that count; of 0 that one counts: what a process pays that reads once."""
    if job.rounds:
        run()
    rounds = []
    for _ in range(max(job.rounds, 1)):
        broker_s, cpu_s, caller_s = broker_cpu_s(job.broker_pid), time.process_time(), time.thread_time()
        began_s = time.perf_counter()
        total = run()
        wall_s = time.perf_counter() - began_s
        cpu_s, caller_s = time.process_time() - cpu_s, time.thread_time() - caller_s
        rounds.append(Round(*total, wall_s, cpu_s, caller_s, broker_cpu_s(job.broker_pid) - broker_s))
    return rounds


def main() -> None:
    """Do the job that the first argument describes."""
    job = Job(**json.loads(sys.argv[1]))
    reader = READERS.get(job.reader)
    for one in measure(job, decoder_alone(job) if reader is None else lambda: reader(job)):
        print(json.dumps(asdict(one)))


if __name__ == "__main__":
    main()

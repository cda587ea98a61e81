"""A tiered topic read straight from the store, beside consumers that get it through the broker.

Rules of the file:

- One real broker tiers the topics to a directory and deletes its own copy. Its JVM optimises as in production.
- Every reader reads each topic whole, in a process of its own, one after the other. It has to find the same number of
  records and of bytes of values.
- The best of several rounds counts, after one round to warm up. All bytes are in the page cache for every reader.
- `--slow-store` puts 30 ms before each GET, and 80 MB/s on each connection: for readers of the broker its plug-in does
  the same, on the same files.
- `--write` puts the tables into docs/performance/. Those of a slow store have a page of their own.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType

from confluent_kafka import Producer

from remote_fetch.formats.batches import BatchFramer
from tests.benchmarks.commands import printed
from tests.benchmarks.document import machine
from tests.benchmarks.on_a_broker import add_options, run
from tests.benchmarks.peers import READERS, Job, Round, segments
from tests.rig.plugins import compiled
from tests.rig.rig import Rig
from tests.rig.topics import QUIET, create_topic, set_config, wait_tiered

AIMS: Mapping[tuple[int, str], float] = MappingProxyType(
    {(100, "none"): 8, (100, "zstd"): 5, (1000, "none"): 3, (1000, "zstd"): 2}
)
"""By bytes a value and codec: how many times as fast as the best configuration of confluent_kafka we want to be."""

OURS, DECODER = "read_arrow", "decoder alone"
CONFLUENT = tuple(name for name in READERS if name.startswith("confluent"))
OPTIONAL = ("kafkarrow", "aiokafka", "kafka-python")
CANNOT: Mapping[str, tuple[str, ...]] = MappingProxyType({"kafkarrow": ("zstd",)})
"""Codecs that a reader lacks: librdkafka in the wheel of kafkarrow 0.1 is built without zstd."""
LARGE_BATCH_BYTES, SMALL_BATCH_BYTES = 1_000_000, 16_384
PARTITIONS = (1, 8)
MIN_SIZE_MB = 12
SLOW_LATENCY_MS, SLOW_BYTES_PER_SECOND = 30, 80_000_000
VALUES_BYTES = 4 << 20
CONTENTS = ("noise", "text")
READER_TIMEOUT_S = 3600
RATIO_HEAD = (
    "| value bytes | codec | batches | partitions | read_arrow / best confluent | aim | / kafkarrow | / aiokafka "
    "| / kafka-python | / decoder alone | best confluent is | client CPU: best confluent / read_arrow |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The records of a topic. `batch_bytes` is the uncompressed size at which the producer closes a batch."""

    value_bytes: int
    codec: str
    batch_bytes: int
    partitions: int
    content: str = "noise"

    def __str__(self) -> str:
        batches = "1 MB" if self.batch_bytes == LARGE_BATCH_BYTES else f"{self.batch_bytes // 1024} KB"
        return f"{self.value_bytes:,} | {self.codec} | {batches} | {self.partitions}"


@dataclass(frozen=True, slots=True)
class Best:
    """The best of one reader's rounds on one topic, and the median of its times."""

    value_bytes: int
    wall_s: float
    median_s: float
    client_cpu_s: float
    caller_cpu_s: float
    broker_cpu_s: float

    @property
    def mb_per_s(self) -> float:
        """Millions of bytes of values a second."""
        return self.value_bytes / self.wall_s / 1e6


def add_shape_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose the topics."""
    parser.add_argument("--values", type=int, nargs="+", choices=(100, 1000), default=[100, 1000], help="bytes a value")
    parser.add_argument("--codecs", nargs="+", choices=("none", "zstd"), default=["none", "zstd"])
    parser.add_argument(
        "--content", choices=CONTENTS, default=CONTENTS[0], help="what values are: half noise, or words (noise)"
    )


def large_batches(arguments: argparse.Namespace, partitions: Sequence[int]) -> Iterator[Shape]:
    """Every combination of what was asked for, in large batches."""
    for value_bytes in arguments.values:
        for codec in arguments.codecs:
            for count in partitions:
                yield Shape(value_bytes, codec, LARGE_BATCH_BYTES, count, arguments.content)


def shapes(arguments: argparse.Namespace) -> Iterator[Shape]:
    """Yield the shapes of `large_batches`. For each value size and codec, also yield one with small batches.

    It has one partition, and batches of 16 KiB, the default of a producer.
    """
    for shape in large_batches(arguments, PARTITIONS):
        yield shape
        if shape.partitions == PARTITIONS[-1]:
            yield replace(shape, batch_bytes=SMALL_BATCH_BYTES, partitions=1)


def values(value_bytes: int, content: str) -> list[bytes]:
    """The values of the records, equal in every run. All together are longer than a batch and a codec's window.

    - "noise" is half repeated text and half noise. It compresses to a little more than a half, so that codecs copy more
      than they decompress.
    - "text" is JSON in words, as services write it. It compresses to about a third.
    """
    dice = random.Random(1)
    return _texts(dice, value_bytes) if content == "text" else _half_noise(dice, value_bytes)


def _texts(dice: random.Random, value_bytes: int) -> list[bytes]:
    words = ["".join(dice.choices(string.ascii_lowercase, k=dice.randint(2, 9))) for _ in range(3000)]
    made = []
    for number in range(VALUES_BYTES // value_bytes):
        text = f'{{"user": "u{dice.randrange(10**8):08}", "at": {1_700_000_000_000 + number * 37}, "text": "'
        text += " ".join(dice.choices(words, k=value_bytes // 3))
        made.append(text[: value_bytes - 2].encode() + b'"}')
    return made


def _half_noise(dice: random.Random, value_bytes: int) -> list[bytes]:
    noise_bytes = value_bytes - value_bytes // 2
    noise = dice.randbytes(VALUES_BYTES)
    texts = [(b'{"user": "someone", "n": %05d}' % n * 40)[: value_bytes // 2] for n in range(256)]
    return [
        texts[number % 256] + noise[at : at + noise_bytes]
        for number, at in enumerate(range(0, len(noise) - noise_bytes + 1, noise_bytes))
    ]


def fill(rig: Rig, topic: str, shape: Shape, records: int) -> None:
    """Make a topic, fill it, and wait until it is in the tier and nowhere else. Batches are checked in the tier."""
    create_topic(
        rig, topic, shape.partitions,
        segment_bytes=128 << 20, index_interval_bytes=4096, max_message_bytes=2 << 20,
        local_retention_ms=-2,  # as long as it is filled, so that segments become as large as they may
    )  # fmt: skip
    producer = Producer(
        {
            "bootstrap.servers": rig.bootstrap,
            "compression.type": shape.codec,
            "batch.size": shape.batch_bytes,
            "batch.num.messages": 1_000_000,
            "message.max.bytes": 2 << 20,
            "linger.ms": 10_000,  # a batch goes when it is full
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 256 << 10,
            **QUIET,
        }
    )
    several = values(shape.value_bytes, shape.content)
    for number in range(records):
        # A partition gets a thousand in a row, as a burst of one key would.
        partition = number // 1000 % shape.partitions
        while True:
            try:
                producer.produce(topic, several[number % len(several)], b"key-%08d" % number, partition)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(60)
    if left:
        raise TimeoutError(f"{left} records were not delivered to {topic}")
    set_config(rig, topic, local_retention_ms=1)
    wait_tiered(rig, topic, range(shape.partitions))
    check_batches(rig.remote, topic, shape, records)


def check_batches(remote: Path, topic: str, shape: Shape, records: int) -> None:
    """Raise ValueError unless the largest batch is as large as it should be, and no record is lost."""
    counts = []
    for path in segments(remote, topic):
        framer = BatchFramer(0)
        framer.feed(memoryview(path.read_bytes()))
        while (batch := framer.next_batch()) is not None:
            counts.append(batch.header.record_count)
    full_bytes = max(counts) * shape.value_bytes
    # Keys, lengths and offsets take the rest.
    if sum(counts) != records or not 0.6 * shape.batch_bytes <= full_bytes <= shape.batch_bytes:
        raise ValueError(f"{topic}: {sum(counts)} records of {records}, {full_bytes} bytes of values in a batch")


def run_reader(job: Job, module: str = "tests.benchmarks.peers") -> Best:
    """One reader in a process of its own. Raises ValueError where it did not read what is there."""
    lines = printed(module, json.dumps(asdict(job)), timeout_s=READER_TIMEOUT_S).splitlines()
    rounds = [Round(**json.loads(line)) for line in lines]
    totals = {(one.records, one.value_bytes) for one in rounds}
    if totals != {(job.records, job.value_bytes)}:
        raise ValueError(f"{job.reader} read {totals} of {job.topic}, which has {job.records}, {job.value_bytes}")
    return Best(
        job.value_bytes,
        min(one.wall_s for one in rounds),
        median(one.wall_s for one in rounds),
        min(one.client_cpu_s for one in rounds),
        min(one.caller_cpu_s for one in rounds),
        min(one.broker_cpu_s for one in rounds),
    )


def measure(
    rig: Rig, shape: Shape, size_mb: int, rounds: int, readers: Sequence[str], latency_ms: int = 0
) -> dict[str, Best]:
    """Each of the readers on a topic of that shape and about `size_mb` of values."""
    records = (size_mb << 20) // shape.value_bytes
    topic = f"{shape.value_bytes}-{shape.codec}-{shape.batch_bytes}-{shape.partitions}-{size_mb}"
    fill(rig, topic, shape, records)
    return {
        reader: run_reader(
            Job(
                reader, topic, shape.partitions, records, records * shape.value_bytes, rounds,
                rig.bootstrap, str(rig.remote), rig.nodes[1].pid, latency_ms, SLOW_BYTES_PER_SECOND,
            )
        )
        for reader in readers
        if shape.codec not in CANNOT.get(reader, ())
    }  # fmt: skip


def ratios(shape: Shape, best: Mapping[str, Best]) -> str:
    """The line of the first table: how many times as fast as whom."""
    ours = best[OURS]
    rival = min(CONFLUENT, key=lambda name: best[name].wall_s)

    def slower(reader: str, digits: int) -> str:
        return f"{best[reader].wall_s / ours.wall_s:.{digits}f}" if reader in best else "-"

    cells = [
        f"**{best[rival].wall_s / ours.wall_s:.1f}**",
        f"{AIMS[shape.value_bytes, shape.codec]:.0f}" if shape.batch_bytes == LARGE_BATCH_BYTES else "",
        slower("kafkarrow", 1),
        slower("aiokafka", 1),
        slower("kafka-python", 0),
        slower(DECODER, 2),
        rival.removeprefix("confluent, "),
        f"{best[rival].client_cpu_s / ours.client_cpu_s:.1f}",
    ]
    return f"| {shape} | {' | '.join(cells)} |"


def details(shape: Shape, sizes_mb: Sequence[int], found: Mapping[int, Mapping[str, Best]]) -> Iterator[str]:
    """The lines of the second table: each reader's speed at each size and between them, and what CPU it cost."""
    small, large = found[sizes_mb[0]], found[sizes_mb[-1]]
    for reader, other in large.items():
        one = small[reader]
        grown_s = other.wall_s - one.wall_s
        slope = (other.value_bytes - one.value_bytes) / grown_s / 1e6 if grown_s > 0 else 0.0
        cells = [
            *(f"{found[size_mb][reader].mb_per_s:,.0f}" for size_mb in sizes_mb),
            f"{slope:,.0f}" if slope else "-",
            f"{other.client_cpu_s / other.value_bytes * 1e9:.2f}",
            f"{other.broker_cpu_s / other.value_bytes * 1e9:.2f}",
        ]
        yield f"| {shape} | {reader} | {' | '.join(cells)} |"


def measured_on(rig: Rig) -> str:
    """The machine, the libraries that are compared, and the broker that has the same cores."""
    peers = machine("confluent-kafka", "kafkarrow", "aiokafka", "kafka-python", "pyarrow")
    return f"{peers} Kafka {rig.version} on the same cores."


def report(
    rig: Rig,
    wanted: Sequence[Shape],
    sizes_mb: Sequence[int],
    rounds: int,
    readers: Sequence[str],
    latency_ms: int = 0,
) -> str:
    """The whole section: machine and both tables."""
    first: list[str] = []
    second: list[str] = []
    for shape in wanted:
        found = {size_mb: measure(rig, shape, size_mb, rounds, readers, latency_ms) for size_mb in sizes_mb}
        first.append(ratios(shape, found[sizes_mb[-1]]))
        second += details(shape, sizes_mb, found)
        print(first[-1], flush=True)
    sizes = " | ".join(f"MB/s, {size_mb} MB" for size_mb in sizes_mb)
    head = (
        f"| value bytes | codec | batches | partitions | reader | {sizes} | MB/s between the sizes | client CPU, s/GB "
        f"| broker CPU, s/GB |\n|{'---|' * (8 + len(sizes_mb))}"
    )
    return "\n".join([measured_on(rig), "", RATIO_HEAD, *first, "", head, *second])


def main() -> int:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 48], metavar="MB", help="MB of values (16 48)")
    parser.add_argument(
        "--rounds", type=int, default=1, help="the best of which counts, after one to warm up; 0: that one (1)"
    )
    add_shape_options(parser)
    parser.add_argument("--without", nargs="+", choices=OPTIONAL, default=[], help="readers to leave out of a long run")
    parser.add_argument("--slow-store", action="store_true", help="30 ms and 80 MB/s before every reader's store")
    add_options(parser)
    arguments = parser.parse_args()
    if min(arguments.sizes) < MIN_SIZE_MB:
        parser.error(f"--sizes: eight partitions with full batches of 1 MB need {MIN_SIZE_MB} MB")
    wanted, sizes_mb = list(shapes(arguments)), sorted(arguments.sizes)
    readers = [name for name in (DECODER, *READERS) if name not in arguments.without]
    latency_ms = SLOW_LATENCY_MS if arguments.slow_store else 0
    return run(
        "bench_broker_slow_store" if arguments.slow_store else "bench_broker",
        arguments,
        RATIO_HEAD,
        lambda rig: report(rig, wanted, sizes_mb, arguments.rounds, readers, latency_ms),
        partial(slow_storage, arguments.version) if arguments.slow_store else no_more,
    )


def no_more(_folder: Path) -> Mapping[str, str]:
    """The broker's own properties suffice."""
    return {}


def slow_storage(version: str, folder: Path) -> Mapping[str, str]:
    """The properties of a broker whose plug-in waits as the fetcher of `Job.latency_ms` does."""
    return {
        "remote.log.storage.manager.class.name": "SlowStorage",
        "remote.log.storage.manager.class.path": f"{compiled('SlowStorage', folder, version)}/",
        "rsm.config.latency.ms": str(SLOW_LATENCY_MS),
        "rsm.config.bytes.per.second": str(SLOW_BYTES_PER_SECOND),
    }


if __name__ == "__main__":
    sys.exit(main())

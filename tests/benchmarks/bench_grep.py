"""One key among many records: `remote-fetch grep` beside `kcat | grep` through the broker, which fetches the same tier.

Rules of the file:

- One real broker tiers a topic of eight partitions to a directory and deletes its own copy.
- Keys are spread by murmur2, as Java's producer does, so that `--partitioner murmur2` reads one partition.
- Values are those of the other benchmarks with a broker: 100 bytes, half repeated text and half noise.
- Every command is a process of its own. It has to find each planted key once. The best of the rounds counts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from confluent_kafka import Producer

from tests.benchmarks.bench_broker import values
from tests.benchmarks.commands import taken
from tests.benchmarks.document import machine
from tests.benchmarks.on_a_broker import add_options, run
from tests.rig.rig import Rig
from tests.rig.topics import QUIET, create_topic, set_config, wait_tiered

PARTITIONS = 8
PLANTED = 20
VALUE_BYTES = 100
HEAD = "| records | keys found | command | s | kcat's time / its |\n|---|---|---|---|---|"


def fill(rig: Rig, topic: str, records: int) -> list[str]:
    """Make the topic, fill it, and wait until it is in the tier alone. Returns the planted keys."""
    create_topic(rig, topic, PARTITIONS, segment_bytes=64 << 20, index_interval_bytes=4096, local_retention_ms=-2)
    producer = Producer(
        {
            "bootstrap.servers": rig.bootstrap, "partitioner": "murmur2_random", "compression.type": "zstd",
            "linger.ms": 100, "queue.buffering.max.messages": 0, "queue.buffering.max.kbytes": 256 << 10, **QUIET,
        }
    )  # fmt: skip
    planted = [f"planted-{number}" for number in range(PLANTED)]
    every = records // PLANTED
    contents = values(VALUE_BYTES, "noise")
    for number in range(records):
        key = planted[number // every] if number % every == every // 2 and number // every < PLANTED else f"k{number}"
        while True:
            try:
                producer.produce(topic, contents[number % len(contents)], key)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise TimeoutError(f"records were not delivered to {topic}")
    set_config(rig, topic, local_retention_ms=1)
    wait_tiered(rig, topic, range(PARTITIONS))
    return planted


def measured(rig: Rig, records: int, rounds: int) -> list[str]:
    """The rows of one topic."""
    topic = f"grep-{records}"
    planted = fill(rig, topic, records)
    program = str(Path(sys.executable).with_name("remote-fetch"))
    ours = [program, "grep", "-b", rig.bootstrap, "--url", str(rig.remote), "-t", topic, "-q", "-f", "%k\\n"]
    ours += ["-X", "log_level=0", "-X", "fetch.remote.when=always"]
    theirs = f"kcat -C -b {rig.bootstrap} -t {topic} -e -q -o beginning -f '%k\\n' | grep -x"
    key = planted[PLANTED // 2]
    for each in planted:
        taken([*ours, "-k", each, "--partitioner", "murmur2"], 1)
    commands = {
        "kcat \\| grep": ["sh", "-c", f"{theirs} {key}"],
        "grep -k, one partition": [*ours, "-k", key, "--partitioner", "murmur2"],
        "grep -k, one partition, -c 1": [*ours, "-k", key, "--partitioner", "murmur2", "-c", "1"],
        "grep -k, all partitions": [*ours, "-k", key],
    }
    best = {name: min(taken(command, 1).wall_s for _ in range(rounds)) for name, command in commands.items()}
    first = next(iter(best.values()))
    return [
        f"| {records:,} | {PLANTED} of {PLANTED} | {name} | {took_s:.2f} | {first / took_s:.1f} |"
        for name, took_s in best.items()
    ]


def main() -> int:
    """Measure, and print the rows."""
    parser = argparse.ArgumentParser(prog="bench_grep", description="grep beside kcat.")
    parser.add_argument("--records", type=int, nargs="+", default=[200_000, 400_000], help="two sizes at least")
    parser.add_argument("--rounds", type=int, default=2)
    add_options(parser)
    arguments = parser.parse_args()

    def report(rig: Rig) -> str:
        rows = [row for records in arguments.records for row in measured(rig, records, arguments.rounds)]
        return "\n".join([machine("confluent-kafka", "pyarrow"), "", HEAD, *rows])

    return run("bench_grep", arguments, "grep beside kcat", report, programs=("kcat",))


if __name__ == "__main__":
    sys.exit(main())

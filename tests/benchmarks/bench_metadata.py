"""From the records of `__remote_log_metadata` to timelines: all of the topic's, and the tenth that one topic needs.

Rules of the file:

- The records are those that brokers write for a copied segment: its begin and its end. Those of ten topics are mixed.
- They are made in portions, and that time is not counted.
- The result is the least thread CPU time of several rounds.
- With `--broker` they are also read from a real broker (`tests/benchmarks/metadata_topic.py`).
- `--write` puts the tables into docs/performance/.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from remote_fetch.formats.metadata_records import SegmentMetadataRecord, SegmentUpdateRecord
from remote_fetch.locate.timeline_builder import TimelineBuilder
from remote_fetch.model import (
    LeaderEpoch,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from remote_fetch.testing.metadata_records import encode_metadata_record
from tests.benchmarks.document import write

TOPICS = 10
PARTITIONS = 8
RECORDS_PER_SEGMENT = 1000
PORTION = 20_000
ROOT = Path(__file__).parents[2]
HEAD = "| records | wanted | seconds | ns a record | segments | memory of the timelines |\n|---|---|---|---|---|---|"


def topic_ids() -> list[Uuid]:
    """Ten topic ids, equal in every run."""
    dice = random.Random(7)
    return [Uuid(dice.randbytes(16)) for _ in range(TOPICS)]


def portions(records: int) -> Iterator[list[bytes]]:
    """The values of the topic's records, in the order of their offsets; the same at every run."""
    dice = random.Random(1)
    ids = topic_ids()
    next_offsets = [[0] * PARTITIONS for _ in ids]
    for start in range(0, records, PORTION):
        values: list[bytes] = []
        for number in range(start, min(start + PORTION, records), 2):
            topic, partition = dice.randrange(TOPICS), dice.randrange(PARTITIONS)
            first = next_offsets[topic][partition]
            next_offsets[topic][partition] += RECORDS_PER_SEGMENT
            where = TopicIdPartition(ids[topic], f"orders-of-region-{topic}", partition)
            values += upload(RemoteLogSegmentId(where, Uuid(dice.randbytes(16))), first, number)
        yield values


def upload(segment_id: RemoteLogSegmentId, first: int, number: int) -> tuple[bytes, bytes]:
    """The two records of one upload that went well."""
    now_ms = 1_700_000_000_000 + number
    metadata = RemoteLogSegmentMetadata(
        segment_id,
        first,
        first + RECORDS_PER_SEGMENT - 1,
        1 << 30,
        now_ms,
        now_ms,
        1,
        (LeaderEpoch(3, first),),
        None,
        RemoteLogSegmentState.COPY_SEGMENT_STARTED,
        txn_index_empty=True,
    )
    finished = SegmentUpdateRecord(segment_id, 1, now_ms, None, RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
    return encode_metadata_record(SegmentMetadataRecord(metadata)), encode_metadata_record(finished)


def replay(records: int, wanted: list[Uuid] | None) -> tuple[float, int]:
    """Seconds of thread CPU time from the values to the timelines, and the segments in them."""
    builder = TimelineBuilder(wanted)
    taken_ns = 0
    offset = 0
    for values in portions(records):
        start = time.thread_time_ns()
        for value in values:
            builder.apply(value, offset=offset)
            offset += 1
        taken_ns += time.thread_time_ns() - start
    start = time.thread_time_ns()
    segments = sum(len(builder.build(partition).segments) for partition in builder.partitions())
    return (taken_ns + time.thread_time_ns() - start) / 1e9, segments


def memory_bytes(records: int, wanted: list[Uuid] | None) -> int:
    """The memory of the builder and of the timelines at the end: a reader that follows the topic keeps both."""
    builder = TimelineBuilder(wanted)
    tracemalloc.start()
    try:
        for values in portions(records):
            for value in values:
                builder.apply(value, offset=0)
        del values
        timelines = [builder.build(partition) for partition in builder.partitions()]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        return held if timelines else 0
    finally:
        tracemalloc.stop()


def row_of(records: int, rounds: int, *, everything: bool) -> str:
    """One line of the table."""
    wanted = None if everything else topic_ids()[:1]
    runs = [replay(records, wanted) for _ in range(rounds)]
    seconds, segments = min(runs)
    # Tracing is slow; memory grows evenly, so a tenth of the records tells.
    memory_mb = memory_bytes(records // 10, wanted) * 10 / 1e6
    return (
        f"| {records:,} | {'all' if everything else '1 of 10'} | {seconds:.2f} | {seconds * 1e9 / records:,.0f} "
        f"| {segments:,} | {memory_mb:,.0f} MB |"
    )


def report(sizes: list[int], rounds: int) -> str:
    """Machine and table."""
    busy = f", load average {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
    lines = [f"{os.cpu_count()} cores{busy}, {platform.system()}, Python {platform.python_version()}.", "", HEAD]
    print(HEAD)
    for records in sizes:
        for everything in (False, True):
            lines.append(row_of(records, rounds, everything=everything))
            print(lines[-1], flush=True)
    return "\n".join(lines)


def from_broker(records: int, rounds: int) -> str:
    """The section of what is read from a real broker; its progress goes to the terminal."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.metadata_topic",
        "--records",
        str(records),
        "--rounds",
        str(rounds),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    print(done.stdout)
    return done.stdout.rstrip()


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100_000], metavar="N", help="records (default: 100000)"
    )
    parser.add_argument("--rounds", type=int, default=2, help="rounds, the best of which counts (default: 2)")
    parser.add_argument("--broker", action="store_true", help="also read the largest size from a broker; needs Java")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance/")
    arguments = parser.parse_args()
    section = report(arguments.sizes, arguments.rounds)
    if arguments.broker:
        section += "\n\n" + from_broker(max(arguments.sizes), arguments.rounds)
    if arguments.write:
        write("bench_metadata", section)


if __name__ == "__main__":
    main()

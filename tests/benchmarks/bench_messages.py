"""From decoded rows, and from the bytes of a segment, to confluent_kafka.Message objects, beside the obvious ways.

Rules of the file:

- The bytes come from a foreign writer (aiokafka).
- Every contender makes the same messages, in lists of one size. Each list is dropped before the next is made, as in an
  application.
- All take turns in the same run. The result is the least thread CPU time of several rounds.
- Python's garbage collector is on, because it walks through the messages.
- `--write` puts the table into docs/performance/.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from confluent_kafka import Message

from remote_fetch.decode.decoded_rows import DecodedRows, arrow_of
from remote_fetch.decode.messages import MESSAGE_COLUMNS, MessageCursor
from remote_fetch.formats.codecs import Codecs
from tests.benchmarks.document import machine, write
from tests.benchmarks.peers import decoded_rows

VALUE_BYTES = (100, 1000)
BATCH_BYTES = 16_384
"""`batch.size` of a Kafka producer by default."""

RANGE_BYTES = 4 << 20
LIST_MESSAGES = 1000
HEADERS = [("trace", b"0123456789abcdef"), ("attempt", b"1")]

HEAD = (
    "| value bytes | headers | data | from columns | million/s | plain loop | from bytes | aiokafka + Message "
    "| plain loop / ours | aiokafka / ours |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)

Lists = Iterator[list[Message]]


@dataclass(frozen=True, slots=True)
class Segment:
    """The uncompressed bytes of one segment and the record batches made of them."""

    value_bytes: int
    has_headers: bool
    size_mb: int
    data: bytes
    batches: list[pa.RecordBatch]
    records: int


def make_segment(value_bytes: int, has_headers: bool, size_mb: int) -> Segment:
    """About `size_mb` of batches, each record with two headers or none; the same at every run."""
    rng = random.Random(1)
    values = [rng.randbytes(value_bytes) for _ in range(256)]
    data = bytearray()
    offset = 0
    while len(data) < size_mb << 20:
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, 0, BATCH_BYTES)
        count = 0
        while builder.append(
            count,
            1_700_000_000_000 + offset,
            b"key-%08d" % offset,
            values[offset % 256],
            HEADERS if has_headers else [],
        ):
            count += 1
            offset += 1
        batch = bytearray(builder.build())
        # Base offset and leader epoch lie outside the CRC; a broker sets them.
        batch[:8], batch[12:16] = (offset - count).to_bytes(8, "big"), bytes(4)
        data += batch
    whole = bytes(data)
    return Segment(value_bytes, has_headers, size_mb, whole, arrow_of(rows_of(whole)), offset)


def rows_of(data: bytes) -> Iterator[DecodedRows]:
    """Frame, check, decode, in ranges as they come from a store."""
    view = memoryview(data)
    pieces = (view[start : start + RANGE_BYTES] for start in range(0, len(data), RANGE_BYTES))
    yield from decoded_rows(pieces, Codecs(), "topic", MESSAGE_COLUMNS)


def ours_from_rows(decoded: Iterable[DecodedRows]) -> Lists:
    """`MessageCursor`."""
    for rows in decoded:
        cursor = MessageCursor(rows, "topic", 0, Message)
        while messages := cursor.take(LIST_MESSAGES):
            yield messages


def plain_loop(segment: Segment) -> Lists:
    """The plain way: columns as lists, and the class called row by row, by position."""
    for whole in segment.batches:
        for start in range(0, whole.num_rows, LIST_MESSAGES):
            batch = whole.slice(start, LIST_MESSAGES)
            rows = zip(
                batch.column("offset").to_pylist(),
                batch.column("key").to_pylist(),
                batch.column("value").to_pylist(),
                batch.column("headers").to_pylist(),
                batch.column("timestampType").to_pylist(),
                batch.column("timestampMs").to_pylist(),
                batch.column("leaderEpoch").to_pylist(),
                strict=True,
            )
            yield [
                Message(
                    "topic",
                    0,
                    offset,
                    key,
                    value,
                    [(header["key"], header["value"]) for header in headers] if headers else None,
                    None,
                    (kind + 1, at),
                    -1.0,
                    epoch,
                )
                for offset, key, value, headers, kind, at, epoch in rows
            ]


def aiokafka_and_message(segment: Segment) -> Lists:
    """aiokafka's compiled record reader, and the class called for each of its records."""
    messages: list[Message] = []
    records = MemoryRecords(segment.data)
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError("checksum")
        for one in batch:
            stamp = (one.timestamp_type + 1, one.timestamp)
            headers = one.headers or None
            messages.append(Message("topic", 0, one.offset, one.key, one.value, headers, None, stamp, -1.0, 0))
        if len(messages) >= LIST_MESSAGES:
            yield messages
            messages = []
    yield messages


def ways(segment: Segment) -> dict[str, Callable[[], Lists]]:
    """Every contender: the first two from columns that are made before, the last two from bytes."""
    return {
        "cursor": lambda: ours_from_rows(list(rows_of(segment.data))),
        "loop": partial(plain_loop, segment),
        "ours": lambda: ours_from_rows(rows_of(segment.data)),
        "aiokafka": partial(aiokafka_and_message, segment),
    }


def fields(message: Message) -> tuple[Any, ...]:
    """The fields that are equal in the messages of every maker."""
    return (
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp(),
        message.leader_epoch(),
    )


def check(segment: Segment) -> None:
    """Raise unless all contenders give the same messages."""
    found = {name: [fields(one) for made in way() for one in made] for name, way in ways(segment).items()}
    for name, messages in found.items():
        if messages != found["cursor"] or len(messages) != segment.records:
            raise ValueError(f"{name} gives other messages")


def measure(segment: Segment, rounds: int) -> dict[str, float]:
    """Nanoseconds of thread CPU time a message: the least of the rounds, the contenders taking turns."""
    contenders = ways(segment)
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, way in contenders.items():
            count = 0
            lists = way()
            start = time.thread_time_ns()
            for messages in lists:
                count += len(messages)
            best[name] = min(best[name], (time.thread_time_ns() - start) / segment.records)
            if count != segment.records:
                raise ValueError(f"{name} gave {count} of {segment.records} messages")
    return best


def row_of(segment: Segment, rounds: int) -> str:
    """One line of the table."""
    best = measure(segment, rounds)
    cells = [
        f"{segment.value_bytes:,}",
        "2" if segment.has_headers else "-",
        f"{segment.size_mb} MB",
        f"{best['cursor']:.0f}",
        f"{1000 / best['cursor']:.1f}",
        f"{best['loop']:,.0f}",
        f"{best['ours']:,.0f}",
        f"{best['aiokafka']:,.0f}",
        f"{best['loop'] / best['cursor']:.1f}",
        f"{best['aiokafka'] / best['ours']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def report(sizes_mb: list[int], rounds: int) -> str:
    """The whole section: machine and table."""
    check(make_segment(100, True, 1))
    lines = [machine("confluent-kafka", "pyarrow", "aiokafka"), "", HEAD]
    for value_bytes in VALUE_BYTES:
        for has_headers in (False, True):
            for size_mb in sizes_mb:
                lines.append(row_of(make_segment(value_bytes, has_headers, size_mb), rounds))
                print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Run and print; see --help."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4], metavar="MB", help="data sizes (default: 1 4)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, the best of which counts (default: 3)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/performance/")
    arguments = parser.parse_args()
    print(HEAD)
    section = report(arguments.sizes, arguments.rounds)
    print()
    print(section)
    if arguments.write:
        write("bench_messages", section)


if __name__ == "__main__":
    main()

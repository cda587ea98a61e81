"""One consumer of a tiered topic in a process of its own: `python -m tests.benchmarks.consumers JOB`, JSON lines out.

Rules of the file:

- The rules of peers hold here too.
- A consumer is used as in an application, by `consume` or by `poll`. Its name tells what is switched off or tuned.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from remote_fetch import RemoteConsumer
from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.decode.messages import MESSAGE_COLUMNS, MessageCursor
from remote_fetch.formats.codecs import Codecs
from tests.benchmarks.peers import LARGE_FETCHES, TUNED, Job, Total, decoded_rows, measure, segments

__all__ = ["HAND_OVER", "PARTS", "READERS", "Reader", "configured"]

HAND_OVER = "hand-over"
"""The job that gives two times in ms, from the last record of the store to the first of the broker, once a round: soon
after `assign`, and later."""
PARTS = "the parts alone"
"""The job that makes the same messages of the same segments in one thread, and asks no broker where they are."""
_PIECE_BYTES = 8 << 20
_TIMEOUT_S = 600
_BATCH = 10_000
_LATER_S = 0.6
"""By then librdkafka has the answer to what it asked right after `assign` (`fetch.wait.max.ms`: half a second)."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A class, its configuration, and whether records are taken one at a time."""

    consumer: type[Consumer]
    config: Mapping[str, Any]
    polls: bool


_ON: Mapping[str, Any] = MappingProxyType({"fetch.remote.enabled": True})

READERS: Mapping[str, Reader] = MappingProxyType(
    {
        f"{name}, {how}": Reader(consumer, config, how == "poll")
        for how in ("consume", "poll")
        for name, consumer, config in (
            ("RemoteConsumer", RemoteConsumer, _ON),
            ("default", Consumer, {}),
            ("tuned", Consumer, TUNED),
            ("8 MiB", Consumer, LARGE_FETCHES),
            ("off, tuned", RemoteConsumer, TUNED),
        )
    }
)
"""Every consumer by the name it has in the tables."""


def configured(reader: Reader, bootstrap: str, remote: str, **more: Any) -> Consumer:
    """The consumer of a reader."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "log_level": 2,
        **reader.config,
        **more,
    }
    if "fetch.remote.enabled" in config:
        config["remote.storage.url"] = remote
    return reader.consumer(config)


def read(reader: Reader, job: Job) -> Total:
    """The whole topic, in batches or record by record."""
    consumer = configured(reader, job.bootstrap, job.remote)
    try:
        consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
        return (_by_poll if reader.polls else _by_consume)(consumer, job.records)
    finally:
        consumer.close()


def _by_consume(consumer: Consumer, wanted: int) -> Total:
    records = value_bytes = 0
    deadline = time.monotonic() + _TIMEOUT_S
    while records < wanted and time.monotonic() < deadline:
        messages = consumer.consume(min(_BATCH, wanted - records), 1.0)
        records += len(messages)
        value_bytes += sum([len(message.value() or b"") for message in messages])
    return Total(records, value_bytes)


def _by_poll(consumer: Consumer, wanted: int) -> Total:
    records = value_bytes = empty = 0
    while records < wanted and empty < _TIMEOUT_S:
        message = consumer.poll(1.0)
        if message is None:
            empty += 1
        else:
            records += 1
            value_bytes += len(message.value() or b"")
    return Total(records, value_bytes)


def parts_alone(job: Job) -> Total:
    """Bytes read, checksums, codecs, columns and messages, one after the other: the least that `consume` can cost."""
    records = value_bytes = 0
    messages: list[Message] = []
    found = _decoded(job)
    cursor = MessageCursor(next(found), job.topic, 0, Message)
    while records < job.records:
        made: list[Message] = []  # beside the list before, which goes when this one is there, as by who calls `consume`
        wanted = min(_BATCH, job.records - records)
        gc.disable()  # as `RemoteConsumer.consume` does
        while len(made) < wanted:
            if not cursor:
                cursor = MessageCursor(next(found), job.topic, 0, Message)
            made += cursor.take(wanted - len(made))
        gc.enable()
        messages = made
        records += len(messages)
        value_bytes += sum([len(message.value() or b"") for message in messages])
    return Total(records, value_bytes)


def _decoded(job: Job) -> Iterator[DecodedRows]:
    codecs = Codecs()
    buffers = [memoryview(bytearray(_PIECE_BYTES)) for _ in range(2)]  # of the one before a batch may be left over
    for path in segments(job.remote, job.topic):
        yield from decoded_rows(_pieces(path, buffers), codecs, job.topic, MESSAGE_COLUMNS)


def _pieces(path: Path, buffers: list[memoryview]) -> Iterator[memoryview]:
    with path.open("rb", buffering=0) as file:
        while size_bytes := file.readinto(buffers[0]):
            yield buffers[0][:size_bytes]
            buffers.reverse()


def hand_over_ms(job: Job, pause_s: float) -> float:
    """From the last record of the store to the first of the broker, which begins at offset `job.records`.

    The application rests for `pause_s` after its first record.
    """
    consumer = configured(Reader(RemoteConsumer, _ON, True), job.bootstrap, job.remote)
    try:
        consumer.assign([TopicPartition(job.topic, 0, max(job.records - _BATCH, 0))])
        deadline, before_s = time.monotonic() + _TIMEOUT_S, time.perf_counter()
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None:
                now_s = time.perf_counter()
                if (message.offset() or 0) >= job.records:
                    return (now_s - before_s) * 1e3
                if pause_s:
                    time.sleep(pause_s)
                before_s, pause_s = time.perf_counter(), 0.0
        raise TimeoutError(f"nothing of {job.topic} from offset {job.records} on")
    finally:
        consumer.close()


def main() -> None:
    """Do the job that the first argument describes."""
    job = Job(**json.loads(sys.argv[1]))
    if job.reader == HAND_OVER:
        for _ in range(job.rounds):
            print(json.dumps([hand_over_ms(job, pause_s) for pause_s in (0.0, _LATER_S)]))
        return
    run = partial(parts_alone, job) if job.reader == PARTS else partial(read, READERS[job.reader], job)
    for one in measure(job, run):
        print(json.dumps(asdict(one)))


if __name__ == "__main__":
    main()

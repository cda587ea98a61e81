"""A program that may die: reads good headers often enough for CPython to specialise the call, then a bad one.

Rules of the file:

- Clients and messages are librdkafka's own. Its mock broker runs in this process.
- The bad record is sent as bytes, because no client sends a header key that is not UTF-8.
- It prints the reader's records and errors.
"""

from __future__ import annotations

import socket
from struct import pack
from typing import cast

from confluent_kafka import Consumer, Producer

from remote_fetch.errors import UnsupportedFormat
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.contact import Causes
from remote_fetch.model import IsolationLevel, TopicIdPartition, Uuid
from remote_fetch.observe import ignore
from remote_fetch.session.broker import BrokerReader
from remote_fetch.session.guard import LogGuard
from remote_fetch.testing.records import Record, encode_batch, rewrite_crc

TIMEOUT_S = 30
TOPIC = "t"
GOOD = 200
"""CPython 3.11 specialises a call the eighth time; later versions count otherwise, none as far as this."""


class Stubs:
    """A cluster of one consumer, and a guard that finds nothing changed."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.causes = Causes()

    def consumer(self, isolation: IsolationLevel) -> Consumer:
        return self._consumer

    def confirm(self, partition: TopicIdPartition) -> None:
        pass


def bad_batch() -> bytes:
    """One record whose header key is not UTF-8."""
    batch = encode_batch(0, [Record(0, value=b"v", headers=(("a key", b"x"), ("next", b"y")))])
    return rewrite_crc(batch.replace(b"a key", b"no\xff\xfe!"))


def send(address: tuple[str, int], batch: bytes) -> None:
    """Hand a batch to partition 0: Produce v7."""
    name = pack(">h", len(TOPIC)) + TOPIC.encode()
    head = pack(">hhihhhii", 0, 7, 1, -1, -1, -1, TIMEOUT_S * 1000, 1)
    request = head + name + pack(">iii", 1, 0, len(batch)) + batch
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(pack(">i", len(request)) + request)
        connection.recv(1 << 10)


def main() -> None:
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    for _ in range(GOOD):
        producer.produce(TOPIC, b"v", partition=0, headers=[("good", b"x")])
    assert producer.flush(TIMEOUT_S) == 0
    (broker,) = producer.list_topics(TOPIC, timeout=TIMEOUT_S).brokers.values()
    send((broker.host, broker.port), bad_batch())
    consumer = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g", "log_level": 0})
    stubs = Stubs(consumer)
    reader = BrokerReader(cast(Cluster, stubs), cast(LogGuard, stubs), ignore)
    partition = TopicIdPartition(Uuid(bytes(15) + b"\x01"), TOPIC, 0)
    try:
        for _ in reader.follow({partition: 0}, IsolationLevel.READ_UNCOMMITTED, ("headers",)):
            pass
    except UnsupportedFormat as error:
        print(error.topic, error.partition, error.offset, repr(error.__cause__))
    consumer.close()


if __name__ == "__main__":
    main()

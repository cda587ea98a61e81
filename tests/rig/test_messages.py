"""The broker is the oracle: messages made from record batches equal a consumer's messages in every accessor."""

from __future__ import annotations

import json
import pickle
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from remote_fetch.cli import main
from remote_fetch.config import Config
from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.decode.messages import MESSAGE_COLUMNS, MessageCursor
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.prepare.job import plan_job
from remote_fetch.scan.scan import Scan
from remote_fetch.session.session import Session
from tests.decoded import fields
from tests.rig import topics
from tests.rig.rig import Rig

TIMEOUT_S = 150
NOT_UTF8 = b"\xff\xfe"
MANY_HEADERS = 100_000
"""The largest number of headers that librdkafka accepts."""


class Raw(str):
    """A header key that a producer encodes to bytes that are not UTF-8."""

    __slots__ = ()

    def encode(self, *_arguments: Any) -> bytes:
        return NOT_UTF8


def produce_odd_headers(rig: Rig, topic: str, headers: list[list[tuple[str, bytes]]]) -> None:
    """Produce records with header keys that librdkafka would change or refuse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer
    producer = KafkaProducer(bootstrap_servers=rig.bootstrap.split(","), max_request_size=4 << 20)
    try:
        for each in headers:
            producer.send(topic, b"odd", headers=each, partition=0).get(TIMEOUT_S)
    finally:
        producer.close(TIMEOUT_S)


def from_broker(rig: Rig, topic: str, count: int) -> list[Message]:
    """The first messages that a plain consumer gets."""
    consumer = Consumer({"bootstrap.servers": rig.bootstrap, "group.id": "messages", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(messages) < count and time.monotonic() < deadline:
            messages += consumer.consume(count - len(messages), timeout=1)
        return messages
    finally:
        consumer.close()


def from_store(rig: Rig, topic: str) -> tuple[list[Message], int]:
    """All messages of a consumer that reads the store, and how many of them came through the broker."""
    config: Mapping[str, Any] = {
        "bootstrap.servers": rig.bootstrap,
        "remote.storage.url": str(rig.remote),
        "log_level": 0,
    }
    parsed = Config.parse(config)
    messages: list[Message] = []
    with Session(parsed, load_fetcher(parsed)) as session:
        isolation = parse_isolation("read_committed")
        plans = plan_job(session, topic, start="earliest", end="latest", partitions=None, isolation=isolation)
        for rows in Scan(session, plans, MESSAGE_COLUMNS).rows():
            assert isinstance(rows, DecodedRows), "the broker read these"
            cursor = MessageCursor(rows, topic, 0, Message)
            while len(cursor):
                messages += cursor.take(7)
        return messages, session.counters.report().broker_records


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_messages_of_every_kind(rig_43: Rig, new_topic: Callable[[str], str], timestamps: str) -> None:
    topic = new_topic("messages")
    topics.create_topic(rig_43, topic, message_timestamp_type=timestamps)
    topics.produce(rig_43, topic, 150)
    topics.produce(rig_43, topic, 20, seed=1, compression_type="zstd")
    produce_odd_headers(rig_43, topic, [[("cut\0here", b"x"), ("", b""), ("\0", b"y")]])
    topics.produce(rig_43, topic, 20, seed=2)
    topics.wait_tiered(rig_43, topic)
    theirs = from_broker(rig_43, topic, 191)
    ours, broker_records = from_store(rig_43, topic)
    assert [fields(one) for one in ours] == [fields(one) for one in theirs]
    assert len(ours) == 191
    assert broker_records == 0
    # The comparison comes last, because a message of the client keeps its headers after the first call for them.
    assert ours == theirs
    assert [one.__reduce__() for one in ours] == [one.__reduce__() for one in theirs]
    assert [fields(one) for one in pickle.loads(pickle.dumps(ours))] == [fields(one) for one in theirs]
    assert {one.timestamp()[0] for one in ours} == {1 if timestamps == "CreateTime" else 2}
    assert [one.headers() for one in ours if one.value() == b"odd"] == [[("cut", b"x"), ("", b""), ("", b"y")]]
    assert {one.headers() is None for one in ours} == {one.key() is None for one in ours} == {True, False}


def test_headers_that_librdkafka_does_not_give(
    rig_43: Rig, new_topic: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In librdkafka, a record with one header too many has none, and a key that is not UTF-8 is an error.

    A message of remote-fetch has the key. `verify` compares their segment without headers.
    """
    topic = new_topic("messages")
    topics.create_topic(rig_43, topic, segment_bytes=1 << 21, max_message_bytes=4 << 20)
    headers = [("h", b"")] * MANY_HEADERS
    produce_odd_headers(rig_43, topic, [headers, [*headers, ("h", b"")], [(Raw("?"), b"x")]])
    topics.wait_tiered(rig_43, topic)
    theirs = from_broker(rig_43, topic, 3)
    ours, _ = from_store(rig_43, topic)
    assert [fields(one) for one in ours[:2]] == [fields(one) for one in theirs[:2]]
    assert [len(one.headers() or ()) for one in ours[:2]] == [MANY_HEADERS, 0]
    with pytest.raises((SystemError, UnicodeDecodeError)):
        theirs[2].headers()
    assert ours[2].headers() == [("\N{REPLACEMENT CHARACTER}" * 2, b"x")]
    assert main(["verify", "-b", rig_43.bootstrap, "--url", str(rig_43.remote), "-t", topic, "-q", "-J"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["records"], len(verdict["findings"]), len(verdict["without_headers"])) == (3, 0, 1)

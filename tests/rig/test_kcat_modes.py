"""`cat -L` and `cat -G` on a real broker: the lines of kcat -L, and a group that goes on where it has committed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition

from remote_fetch.cli import main
from tests.rig import topics
from tests.rig.kcat import kcat
from tests.rig.rig import Rig
from tests.rig.topics import QUIET
from tests.typed.avro_cases import encode
from tests.typed.registry_double import registry_double

_TIMEOUT_S = 150


@pytest.fixture
def topic(rig_43: Rig, new_topic: Callable[[str], str]) -> str:
    """A topic with ten records, of which the tier has all."""
    name = new_topic("kcat-modes")
    topics.create_topic(rig_43, name)
    producer = Producer({"bootstrap.servers": rig_43.bootstrap, **QUIET})
    for number in range(10):
        producer.produce(name, value=b"v%d" % number, partition=0)
    producer.flush(_TIMEOUT_S)
    topics.wait_tiered(rig_43, name)
    return name


def test_metadata_is_listed_as_kcat_lists_it(rig_43: Rig, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = ["-b", rig_43.bootstrap, "-t", topic, "-X", "log_level=0"]
    assert main(["cat", "-L", *options]) == 0
    printed = capfd.readouterr().out
    head, *lines = printed.splitlines()
    assert head.startswith(f"Metadata for {topic} (from broker ")
    assert lines[-2:] == [
        f'  topic "{topic}" with 1 partitions:',
        "    partition 0, leader 1, replicas: 1, isrs: 1",
    ]
    assert main(["cat", "-L", "-J", *options]) == 0
    as_json = json.loads(capfd.readouterr().out)
    assert as_json["topics"] == [
        {"topic": topic, "partitions": [{"partition": 0, "leader": 1, "replicas": [{"id": 1}], "isrs": [{"id": 1}]}]}
    ]
    program = kcat()
    if program is not None:
        for more in ((), ("-J",)):
            command = [program, "-L", "-b", rig_43.bootstrap, "-t", topic, *more]
            theirs = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True, text=True).stdout
            assert main(["cat", "-L", *options, *more]) == 0
            assert _places(capfd.readouterr().out) == _places(theirs)
    assert main(["cat", "-L", "-b", rig_43.bootstrap, "-t", f"{topic}x", "-X", "log_level=0"]) == 1
    assert f"The nearest name is '{topic}'" in capfd.readouterr().err


def _places(printed: str) -> str:
    """The output without the name of the broker that answered: any broker of the bootstrap list may."""
    if printed.startswith("{"):
        return json.dumps({**json.loads(printed), "originating_broker": None})
    return printed.split("\n", 1)[1]


def test_a_group_goes_on_where_it_has_committed(
    rig_43: Rig, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    options = ["-b", rig_43.bootstrap, "--url", str(rig_43.remote), "-X", "log_level=0", "-q", "-f", "%o ", "-e"]
    group = ["cat", "-G", f"{topic}-readers", *options, topic]
    assert main([*group, "-o", "beginning", "-c", "4"]) == 0
    assert capfdbinary.readouterr().out == b"0 1 2 3 "
    assert main(group) == 0
    assert capfdbinary.readouterr().out == b"4 5 6 7 8 9 "
    assert main(group) == 0
    assert capfdbinary.readouterr().out == b""


def committed(rig: Rig, group: str, topic: str) -> int:
    """The offset of partition 0 that a group has committed."""
    consumer = Consumer({"bootstrap.servers": rig.bootstrap, "group.id": group, **QUIET})
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], _TIMEOUT_S)[0].offset)
    finally:
        consumer.close()


def test_a_group_commits_what_it_has_printed(
    rig_43: Rig, new_topic: Callable[[str], str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The fourth value is no number of 32 bits. Nothing can be written to a device that is full."""
    name = new_topic("kcat-printed")
    topics.create_topic(rig_43, name)
    producer = Producer({"bootstrap.servers": rig_43.bootstrap, **QUIET})
    for number in range(10):
        producer.produce(name, value=b"odd" if number == 3 else number.to_bytes(4, "big"), partition=0)
    producer.flush(_TIMEOUT_S)
    topics.wait_tiered(rig_43, name)
    options = ["-b", rig_43.bootstrap, "--url", str(rig_43.remote), "-X", "log_level=0", "-q", "-e", "-o", "beginning"]
    assert main(["cat", "-G", f"{name}-a", *options, "-s", "value=i", name]) == 1
    assert capfdbinary.readouterr().out == b"0\n1\n2\n"
    assert committed(rig_43, f"{name}-a", name) == 3
    command = [sys.executable, "-m", "remote_fetch", "cat", "-G", f"{name}-b", *options, "-f", "%o", name]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(command, stdout=full, timeout=_TIMEOUT_S, check=False)
    assert ended.returncode == 1
    assert committed(rig_43, f"{name}-b", name) == OFFSET_INVALID
    assert main(["cat", "-G", f"{name}-c", *options, "-f", "%o ", "-X", "enable.auto.offset.store=true", name]) == 0
    assert capfdbinary.readouterr().out == b"0 1 2 3 4 5 6 7 8 9 "
    assert committed(rig_43, f"{name}-c", name) == 10


def test_a_group_prints_avro_from_the_tier_and_from_the_broker(
    rig_43: Rig, new_topic: Callable[[str], str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """As kcat -s value=avro: JSON of each payload, wherever its record comes from."""
    name = new_topic("kcat-avro")
    schema = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "int"}]}
    topics.create_topic(rig_43, name)
    producer = Producer({"bootstrap.servers": rig_43.bootstrap, **QUIET})

    def produce(numbers: range) -> None:
        for number in numbers:
            producer.produce(name, value=b"\0\0\0\0\1" + encode(schema, {"number": number}), partition=0)
        producer.flush(_TIMEOUT_S)

    produce(range(6))
    topics.wait_tiered(rig_43, name)
    topics.set_config(rig_43, name, local_retention_ms=-2)
    produce(range(6, 9))
    options = ["-b", rig_43.bootstrap, "--url", str(rig_43.remote), "-X", "log_level=0", "-q", "-e", "-o", "beginning"]
    with registry_double() as registry:
        registry.register(f"{name}-value", schema)
        command = ["cat", "-G", f"{name}-readers", *options, "-r", registry.url, "-s", "value=avro", name]
        assert main(command) == 0
    printed = capfdbinary.readouterr().out.splitlines()
    assert [json.loads(line) for line in printed] == [{"number": number} for number in range(9)]

"""`make broker`: runs a real broker with tiered storage for a person, with a topic that keeps growing.

Rules of the file:

- Every process that this module starts, it also ends, even after Ctrl-C. Nothing is left behind.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.rig.artifacts import MissingTool, is_installed, jars
from tests.rig.rig import VERSIONS, Rig, single
from tests.rig.topics import QUIET, create_topic, offsets

_TOPIC = "orders"
_PARTITIONS = 2
_FIRST_RECORDS = 5_000
_RECORDS_PER_S = 20


def main() -> int:
    """Run until Ctrl-C; see --help."""
    parser = argparse.ArgumentParser(prog="make broker", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--version", default=VERSIONS[0], help=f"the Kafka version (default: {VERSIONS[0]})")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        if not is_installed(arguments.version):
            _say(f"Maven brings Kafka {arguments.version}. Later starts do not need it")
        jars(arguments.version)
        _say("The broker starts, and moves the first segments to the tier")
        with (
            tempfile.TemporaryDirectory(prefix="remote-fetch-broker-") as folder,
            single(Path(folder), arguments.version, full_compiler=True) as rig,
        ):
            _run(rig)
    except MissingTool as missing:
        _say(f"{missing}. On Debian and Ubuntu: apt install default-jdk-headless maven")
        return 1
    except KeyboardInterrupt:
        _say("\nStopped; nothing is left behind.")
    return 0


def _interrupt(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt the cleaning up
    raise KeyboardInterrupt


def _run(rig: Rig) -> None:
    create_topic(rig, _TOPIC, _PARTITIONS, segment_bytes=65536, index_interval_bytes=4096, local_retention_ms=3000)
    # A batch larger than a segment would be refused.
    producer = Producer({"bootstrap.servers": rig.bootstrap, "linger.ms": 20, "batch.size": 16_384, **QUIET})
    numbers = itertools.count()
    for _ in range(_FIRST_RECORDS):
        _produce(producer, next(numbers))
    producer.flush()
    rig.until("a segment that is in the tier only", lambda: offsets(rig, _TOPIC, 0).earliest_local > 0)
    _say(_COMMANDS.format(
        version=rig.version, bootstrap=rig.bootstrap, remote=rig.remote, topic=_TOPIC, python=sys.executable,
        properties=rig.nodes[1].folder / "server.properties",
        command=Path(sys.executable).with_name("remote-fetch"), rate=_RECORDS_PER_S,
    ))  # fmt: skip
    while rig.nodes[1].is_running:
        _produce(producer, next(numbers))
        producer.poll(0)
        time.sleep(1 / _RECORDS_PER_S)
    _say(f"The broker ended by itself; it said last:\n{rig.nodes[1].log_tail()}")


def _produce(producer: Producer, number: int) -> None:
    value = json.dumps({"n": number, "user": f"user-{number % 97}", "text": "lorem ipsum " * (number % 7)})
    producer.produce(_TOPIC, key=f"user-{number % 97}", value=value, partition=number % _PARTITIONS)


_COMMANDS = """
Kafka {version} listens on {bootstrap} and tiers to
  {remote}
Its configuration is
  {properties}
Topic {topic} grows by {rate} records a second. A segment of it is full after about a minute, and then in the tier only.
Try in another terminal, in this folder:

  export BROKER={bootstrap} TIER={remote}
  {command} cat -b $BROKER --url $TIER -t {topic} -p 0 -o beginning -c 5 -e
  {command} ls -b $BROKER --url $TIER -t {topic}
  {command} plan -b $BROKER --url $TIER -t {topic}
  {command} cat -b $BROKER --url $TIER -t {topic} -o -5 -e
  {command} cat -b $BROKER --url $TIER -t {topic} -e -J > {topic}.jsonl
  {python} examples/05_spark_batch.py $BROKER $TIER {topic}

Ctrl-C stops it.
"""


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Moves the leaders and followers of a partition, asks for them, and reads the brokers' disks.

Rules of the file:

- A leader changes by a request to the controller or by the end of its process, never by chance.
- Every wait has a deadline.
- Statements about a disk come from the files on it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.rig.rig import Rig
from tests.rig.topics import admin, is_readable

__all__ = [
    "Replicas",
    "kept_by",
    "move_leader",
    "paused",
    "replicas",
    "tiered_with",
    "wait_followed",
    "wait_led",
]

_TIMEOUT_S = 150
_ANSWER_S = 10
_ELECTED_S = 10


@dataclass(frozen=True, slots=True)
class Replicas:
    """The brokers of one partition. `leader` is -1 without a leader. `assigned` begins with the preferred leader."""

    leader: int
    in_sync: frozenset[int]
    assigned: tuple[int, ...]


def replicas(rig: Rig, topic: str, partition: int = 0) -> Replicas:
    """The brokers of a partition as the cluster describes them now. Raises KafkaException if no broker answers."""
    client = admin(rig)
    # Plain metadata: any broker gives it. A description is asked of one, which may be the one that has just ended.
    found = client.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions[partition]
    return Replicas(found.leader, frozenset(found.isrs), tuple(found.replicas))


def wait_followed(rig: Rig, topic: str, followers: Sequence[int], partition: int = 0) -> None:
    """Wait until exactly these brokers are in sync, the leader among them."""
    _wait_for(rig, topic, partition, f"in sync: {followers}", lambda now: now.in_sync == frozenset(followers))


def wait_led(rig: Rig, topic: str, leader: int, partition: int = 0) -> None:
    """Wait until a broker leads and serves consumers, also from the tier. A new leader has to read metadata first."""
    _wait_for(rig, topic, partition, f"led by {leader}", lambda now: now.leader == leader)
    rig.until(f"{topic}-{partition} to be readable", lambda: is_readable(rig, topic, partition), _TIMEOUT_S)


def move_leader(rig: Rig, topic: str, assigned: Sequence[int]) -> None:
    """Give partition 0 to these brokers, in this order, wait until all are in sync, and let the first of them lead.

    A new broker copies the leader's log from the start of its local part on.
    """
    _ask_controller(rig, lambda client, wanted: client.alter_partition_reassignments({wanted: list(assigned)}), topic)
    _wait_for(
        rig,
        topic,
        0,
        f"brokers {assigned}",
        lambda now: now.assigned == tuple(assigned) and now.in_sync == frozenset(assigned),
    )
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        _ask_controller(rig, lambda client, wanted: client.elect_leaders(0, {wanted.topic: [wanted.partition]}), topic)
        try:  # a broker that is out of sync at that moment is not elected, and nothing tells of it
            _wait_for(rig, topic, 0, f"led by {assigned[0]}", lambda now: now.leader == assigned[0], _ELECTED_S)
            break
        except TimeoutError:
            if time.monotonic() > deadline_s:
                raise
    wait_led(rig, topic, assigned[0])


@contextmanager
def paused(rig: Rig, number: int) -> Iterator[None]:
    """Suspend a broker during the block.

    It fetches nothing. If the block is short, the controller does not fence it.
    """
    rig.nodes[number].pause()
    try:
        yield
    finally:
        rig.nodes[number].resume()


def kept_by(rig: Rig, number: int, topic: str, text: bytes, partition: int = 0) -> int:
    """How often a text occurs in a partition's log on a broker's own disk."""
    folder = Path(rig.nodes[number].properties["log.dirs"]) / f"{topic}-{partition}"
    return sum(_bytes_of(file).count(text) for file in folder.glob("*.log"))


def tiered_with(folder: Path, text: bytes) -> set[str]:
    """The ids of the segments in a partition's folder of the tier that contain a text."""
    return {file.stem[21:] for file in folder.glob("*.log") if text in file.read_bytes()}


def _bytes_of(file: Path) -> bytes:
    with suppress(FileNotFoundError):  # the broker deletes as we look
        return file.read_bytes()
    return b""


def _wait_for(
    rig: Rig,
    topic: str,
    partition: int,
    what: str,
    fits: Callable[[Replicas], bool],
    timeout_s: float = _TIMEOUT_S,
) -> None:
    def is_so() -> bool:
        with suppress(KafkaException):  # a broker that has just ended may be the one that was asked
            return fits(replicas(rig, topic, partition))
        return False

    rig.until(f"{topic}-{partition} {what}", is_so, timeout_s)


def _ask_controller(rig: Rig, ask: Callable[[Any, Any], object], topic: str) -> None:
    """Send the controller a request about partition 0 that confluent_kafka does not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaAdminClient, TopicPartition
    client = KafkaAdminClient(bootstrap_servers=rig.bootstrap.split(","))
    try:
        ask(client, TopicPartition(topic, 0))
    finally:
        client.close()

"""Causes faults of a broker: uploads that fail and recover, and restarts that begin a new leader epoch.

Rules of the file:

- No fault relies on file permissions, because the tests may run as root.
- A fault puts files that it moved back in their place.
- Every wait has a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.rig.rig import Rig
from tests.rig.topics import admin, is_readable

__all__ = ["failing_uploads", "leader_epoch", "new_leader_epoch", "tier_folder", "topic_id"]

_TIMEOUT_S = 150


def topic_id(rig: Rig, topic: str) -> str:
    """A topic's id in Kafka's own letters."""
    client = admin(rig)  # an answer needs its client alive
    found = client.describe_topics(TopicCollection([topic]))[topic].result(_TIMEOUT_S)
    # librdkafka writes it in the other base64 alphabet.
    return str(found.topic_id).translate(str.maketrans("+/", "-_"))


def tier_folder(rig: Rig, topic: str, partition: int) -> Path:
    """Where LocalTieredStorage keeps the segments of a partition."""
    return rig.folder_in_tier(topic, partition, topic_id(rig, topic))


@contextmanager
def failing_uploads(rig: Rig, topic: str, partition: int) -> Iterator[Callable[[], None]]:
    """Let all uploads of a partition fail: a file replaces its directory. The tiered segments are gone too.

    The block gets a function that waits for one more failed upload. It needs a segment that is to be uploaded.
    """
    folder = tier_folder(rig, topic, partition)
    aside = folder.with_name(f"{folder.name}.aside")
    aside.mkdir(parents=True)
    while not _is_blocked(folder, aside):
        pass

    def wait_failure() -> None:
        before = _failed_uploads(rig, topic, partition)
        rig.until("a failed upload", lambda: _failed_uploads(rig, topic, partition) > before)

    try:
        yield wait_failure
    finally:
        folder.unlink()
        folder.mkdir(exist_ok=True)
        for file in aside.iterdir():
            file.rename(folder / file.name)
        aside.rmdir()


def _is_blocked(folder: Path, aside: Path) -> bool:
    """Move the folder's contents aside and put a file in its place. The broker may write at the same time."""
    with suppress(OSError):
        if folder.is_dir():
            for file in folder.iterdir():
                file.rename(aside / file.name)
            folder.rmdir()
        folder.touch(exist_ok=False)
        return True
    return False


def _failed_uploads(rig: Rig, topic: str, partition: int) -> int:
    said = f"Error occurred while copying log segments of partition: {topic_id(rig, topic)}:{topic}-{partition}"
    return sum(node.log_file.read_text(errors="replace").count(said) for node in rig.brokers.values())


def leader_epoch(rig: Rig, topic: str, partition: int) -> int:
    """The leader epoch of a partition, -1 while it has no leader."""
    client = admin(rig)
    wanted = TopicPartition(topic, partition)
    try:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        found = client.list_offsets({wanted: latest})[wanted].result(_TIMEOUT_S)
    except KafkaException:
        return -1
    return -1 if found.leader_epoch is None else int(found.leader_epoch)


def new_leader_epoch(rig: Rig, topic: str, partition: int = 0, *, node: int = 1) -> int:
    """Restart a node, wait until the partition can be read again, also from the tier, and return its leader epoch.

    The node is stopped by SIGTERM, because in Kafka 3.9 a killed single broker goes on in its old epoch.
    """
    before = leader_epoch(rig, topic, partition)
    rig.restart(node)
    rig.until(f"a new leader of {topic}-{partition}", lambda: leader_epoch(rig, topic, partition) > before)
    rig.until(f"{topic}-{partition} to be readable", lambda: is_readable(rig, topic, partition))
    return leader_epoch(rig, topic, partition)

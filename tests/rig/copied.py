"""Finds the end of the tier in the broker's log and the tier's files, because brokers before 3.9 do not tell it.

Rules of the file:

- A file in the tier counts only after the broker has logged that its copy is complete.
"""

from __future__ import annotations

import re
from pathlib import Path

from remote_fetch.formats.batches import BatchFramer
from remote_fetch.model import Uuid
from tests.rig.rig import Rig

__all__ = ["latest_copied"]


def latest_copied(rig: Rig, topic: str, partition: int, topic_id: Uuid) -> int:
    """The last offset of the last copied segment, which LATEST_TIERED would give. -1 if there is none."""
    place = re.escape(f"{topic_id}:{topic}-{partition}")
    said = re.compile(rf"Copied \S+ to remote storage with segment-id: \S*topicIdPartition={place}, id=([\w-]+)")
    ids = {found for node in rig.brokers.values() for found in said.findall(node.log_file.read_text(errors="replace"))}
    folder = rig.folder_in_tier(topic, partition, str(topic_id))
    copied = sorted(path for path in folder.glob("*.log") if path.stem[21:] in ids)
    return _last_offset(copied[-1]) if copied else -1


def _last_offset(log: Path) -> int:
    framer, last = BatchFramer(0), -1
    framer.feed(memoryview(log.read_bytes()))
    while (batch := framer.next_batch()) is not None:
        last = batch.header.last_offset
    return last

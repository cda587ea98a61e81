"""Whether the name of an object shows that the object belongs to one segment of one topic.

A service signs URLs for others, and a client reads URLs that it was given. Both believe a name only if `belongs_to`
holds, because parts of names come from metadata, templates and options, which may be wrong or made to mislead.

Rules of the file:

- Pure. A name is relative to the root of the storage, decoded, and uses `/`.
- Texts are compared as they are, with their case: object stores keep names apart by case.
- A text counts only as a whole. `orders-1` is neither in `orders-10/` nor in `all-orders-1/`.
"""

from __future__ import annotations

import re
from uuid import UUID

from remote_fetch.model import NO_ID, RemoteLogSegmentMetadata, Uuid

__all__ = ["belongs_to"]

_MAX_NAME_CHARS = 1024
"""The longest name that S3, Google Cloud Storage and Azure take."""
_MISLEADING = re.compile(r"[%?#\\]|(?:^|/)\.{1,2}(?:/|$)|/$")
"""A URL of such a name may lead elsewhere: a second decoding, a query, a fragment, a folder above, an empty name."""
_OF_TOPICS = "[A-Za-z0-9._-]"
"""The characters of topics' names (Kafka's Topic.validate). Any other one ends a topic's name."""


def belongs_to(name: str, segment: RemoteLogSegmentMetadata) -> bool:
    """Whether an object of this name belongs to the segment.

    The name has to contain, each as a whole:

    - the segment's id, as Kafka prints it (22 characters) or with hyphens (36), and
    - the topic's id, as Kafka prints it or with hyphens, or the topic's name with the partition: `orders-0`,
      `orders_0`, `orders.0` or `orders/0`, also `topic=orders/partition=0`. Before the topic's name and after the
      partition stands a character that topics' names cannot have, or the name begins or ends there. After the
      partition the segment's start offset or id may follow instead (`orders-0-00000000000000000042`): a topic that
      is called `orders-0` has other names.

    False too for a name that a URL could turn into another one. It has `..`, `%`, `?`, `#`, a backslash or characters
    that cannot be printed, more than 1024 characters, or no last part.
    """
    partition = segment.topic_id_partition
    topic_id, segment_id = partition.topic_id, segment.segment_id.id
    if segment_id in (NO_ID, topic_id) or not 0 < len(name) <= _MAX_NAME_CHARS:
        return False
    if not name.isprintable() or _MISLEADING.search(name) is not None:
        return False
    if not _has_id(name, segment_id):
        return False
    # Objects of many topics may have the id of no topic in their names.
    return (topic_id != NO_ID and _has_id(name, topic_id)) or _has_topic_partition(name, segment)


def _has_id(name: str, uuid: Uuid) -> bool:
    return re.search(rf"(?<![A-Za-z0-9])(?:{_either_form(uuid)})(?![A-Za-z0-9])", name) is not None


def _has_topic_partition(name: str, segment: RemoteLogSegmentMetadata) -> bool:
    partition = segment.topic_id_partition
    topic, number = re.escape(partition.topic), str(partition.partition)
    own = rf"{segment.start_offset:020d}|{_either_form(segment.segment_id.id)}"
    together = rf"(?<!{_OF_TOPICS}){topic}[-_.]{number}(?:[-_.](?:{own})(?![A-Za-z0-9])|(?!{_OF_TOPICS}))"
    if re.search(together, name) is not None:
        return True
    folders = rf"(?<!{_OF_TOPICS}){topic}/(?:partition=)?{number}(?:/|[-_.](?:{own})(?![A-Za-z0-9]))"
    return re.search(folders, name) is not None


def _either_form(uuid: Uuid) -> str:
    """A pattern for an id as Kafka prints it, and with hyphens, in hexadecimal."""
    return f"{re.escape(str(uuid))}|{UUID(bytes=uuid.raw)}"

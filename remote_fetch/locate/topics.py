"""Topics as users name them: NAME, or NAME:ID where a name alone is not enough.

Rules of the file: pure; identity is the topic id, so a name that stands for several ids is an error that lists them.
"""

from __future__ import annotations

from collections.abc import Iterable

from remote_fetch.errors import UnknownTopic
from remote_fetch.model import TOPIC_NAME_RULE, TopicIdPartition, Uuid, is_topic_name

__all__ = ["one_topic", "sorted_partitions", "split_topic"]

_SHOWN_TOPICS = 20


def split_topic(text: str) -> tuple[str, Uuid | None]:
    """A topic's name, and its id if the text is NAME:ID. Raises UnknownTopic for what is no name or no id."""
    name, colon, topic_id = text.partition(":")
    if not is_topic_name(name):
        raise UnknownTopic(f"{name[:300]!r} is no topic name: {TOPIC_NAME_RULE}")
    try:
        return name, Uuid.parse(topic_id) if colon else None
    except ValueError as error:
        raise UnknownTopic(f"{text!r}: what follows the colon is no topic id ({error})") from None


def sorted_partitions(partitions: Iterable[TopicIdPartition]) -> tuple[TopicIdPartition, ...]:
    """Partitions by topic name, topic id and number."""
    return tuple(sorted(partitions, key=lambda one: (one.topic, one.topic_id, one.partition)))


def one_topic(
    topic: str, found: Iterable[TopicIdPartition], everything: Iterable[TopicIdPartition]
) -> tuple[TopicIdPartition, ...]:
    """The partitions found for a topic, sorted. Raises UnknownTopic for none, and for those of several topic ids.

    `everything` is drawn only to tell which topics there are.
    """
    partitions = sorted_partitions(found)
    ids = sorted({partition.topic_id for partition in partitions})
    if not ids:
        names = sorted({partition.topic for partition in everything})
        shown = ", ".join(names[:_SHOWN_TOPICS]) + (", ..." if len(names) > _SHOWN_TOPICS else "")
        raise UnknownTopic(
            f"no segment of topic {topic!r} is in the remote storage; topics there: {shown or 'none'}",
            hint="Check the topic's name, remote.storage.url and remote.storage.layout",
        )
    if len(ids) > 1:
        name = split_topic(topic)[0]
        raise UnknownTopic(
            f"topic {name!r} was deleted and made again: its name stands for {len(ids)} topic ids",
            hint="Choose one of " + ", ".join(f"{name}:{one}" for one in ids),
        )
    return partitions

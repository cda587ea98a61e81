"""Topics as users name them: NAME, or NAME:ID if a name stands for several topics.

Rules of the file:

- Pure.
- The identity of a topic is its id. A name that stands for several ids is an error that lists them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable

from remote_fetch.errors import UnknownTopic
from remote_fetch.model import TOPIC_NAME_RULE, Survey, TopicIdPartition, Uuid, is_topic_name

__all__ = [
    "SHOWN_TOPICS",
    "EmptyStorage",
    "logless_topic",
    "nearest_hint",
    "of_real_ids",
    "one_topic",
    "sorted_partitions",
    "split_topic",
    "unknown_topic",
]

SHOWN_TOPICS = 20
"""How many names an error shows."""


class EmptyStorage(UnknownTopic):
    """The storage has no segment of any topic. A survey has found out why. `except UnknownTopic` takes it, too."""


def split_topic(text: str) -> tuple[str, Uuid | None]:
    """A topic's name, and its id if the text is NAME:ID. Raises UnknownTopic if either is malformed."""
    name, colon, topic_id = text.partition(":")
    if not is_topic_name(name):
        raise UnknownTopic(f"{name[:300]!r} is not a topic name: {TOPIC_NAME_RULE}")
    try:
        return name, Uuid.parse(topic_id) if colon else None
    except ValueError as error:
        raise UnknownTopic(f"{text!r}: the text after the colon is not a topic id ({error})") from None


def sorted_partitions(partitions: Iterable[TopicIdPartition]) -> tuple[TopicIdPartition, ...]:
    """Partitions by topic name, topic id and number."""
    return tuple(sorted(partitions, key=lambda partition: (partition.topic, partition.topic_id, partition.partition)))


def one_topic(
    topic: str, found: Iterable[TopicIdPartition], unknown: Callable[[], UnknownTopic]
) -> tuple[TopicIdPartition, ...]:
    """The partitions found for a topic, sorted.

    Raises UnknownTopic if they have several topic ids. If there are none, raises the error that `unknown` makes.
    """
    partitions = sorted_partitions(found)
    ids = sorted({partition.topic_id for partition in partitions})
    if not ids:
        raise unknown()
    if len(ids) > 1:
        name = split_topic(topic)[0]
        raise UnknownTopic(
            f"topic {name!r} was deleted and made again: its name stands for {len(ids)} topic ids",
            hint="Choose one of " + ", ".join(f"{name}:{topic_id}" for topic_id in ids),
        )
    return partitions


def of_real_ids(
    found: Collection[TopicIdPartition],
    named_only: Collection[TopicIdPartition],
    has_segments: Callable[[TopicIdPartition], object],
) -> list[TopicIdPartition]:
    """The partitions `found` with segments, and those of `named_only`, without topic ids that have no segment.

    If there are several topic ids, `has_segments` is asked about partitions of an id until one of them has some.
    """
    ids = {partition.topic_id for partition in found}
    if len(ids.union(partition.topic_id for partition in named_only)) > 1:
        for partition in named_only:
            if partition.topic_id not in ids and has_segments(partition):
                ids.add(partition.topic_id)
        named_only = [partition for partition in named_only if partition.topic_id in ids]
    return [*found, *named_only]


def unknown_topic(topic: str | None, known: Iterable[str], survey: Survey | None = None) -> UnknownTopic:
    """The error for a topic (None: any) without segments. `known` are the names of topics that were found.

    `survey` names the place that was searched. It describes the place if no topic was found, or if `topic` is None:
    a folder of another layout may be named like a partition of a topic.
    """
    what = "no segment" if topic is None else f"no segment of topic {topic!r}"
    place = "the remote storage" if survey is None else f"the remote storage {survey.place}"
    names = sorted(set(known))
    survey_hint = None if survey is None else survey.hint
    if (topic is None or not names) and survey is not None and survey.found is not None:
        hint = survey_hint or "Check remote.storage.url and remote.storage.layout"
        return EmptyStorage(f"{what} is in {place}: {survey.found}", hint=hint)
    shown = ", ".join(names[:SHOWN_TOPICS]) + (", ..." if len(names) > SHOWN_TOPICS else "")
    name = (topic or "").partition(":")[0]
    return UnknownTopic(
        f"{what} is in {place}; topics there: {shown or 'none'}",
        hint=survey_hint
        or nearest_hint(name, names)
        or "Check the topic's name, remote.storage.url and remote.storage.layout",
    )


def logless_topic(topic: str, survey: Survey | None = None) -> UnknownTopic:
    """The error for a topic of which files of segments were found, but no log. `survey` names the place."""
    place = "the remote storage" if survey is None else f"the remote storage {survey.place}"
    return UnknownTopic(
        f"no log of topic {topic!r} is in {place}, but other files of its segments: the records are lost, unless a "
        "broker is deleting these files, or a copy of the storage is under way",
        hint=None if survey is None else survey.hint,
    )


def nearest_hint(name: str, names: Collection[str]) -> str | None:
    """A hint at the name that is like `name`. None if there is no such name, or if `name` is one of them."""
    near = [] if name in names else difflib.get_close_matches(name, names, n=1)
    return f"The nearest name is {near[0]!r}" if near else None

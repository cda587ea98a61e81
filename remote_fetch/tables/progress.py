"""Which offsets of a topic a table or a directory holds, as it says so itself.

Rules of the file:

- Pure.
- A topic is known by its id. A name alone may stand for another topic tomorrow.
- Ranges are half-open: [from, to). `to` is the offset at which a reader goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remote_fetch.errors import CorruptSegment
from remote_fetch.failures.file_errors import MISSHAPEN

__all__ = ["Progress", "starting_offsets"]

_EARLIEST = -2


@dataclass(frozen=True, slots=True)
class Progress:
    """The offsets of one topic that are there: `ranges` has [from, to) by partition. `job` put the last of them there.

    `ranges` may be known by their ends alone. Then `from` is equal to `to`.
    """

    topic: str
    topic_id: str
    ranges: Mapping[int, tuple[int, int]]
    job: str = ""

    @property
    def ends(self) -> dict[int, int]:
        """The offset after the last one, by partition."""
        return {partition: stop for partition, (_, stop) in self.ranges.items()}

    @property
    def offsets(self) -> int:
        """How many offsets the ranges have."""
        return sum(stop - first for first, stop in self.ranges.values())

    def followed_by(self, later: Progress) -> Progress:
        """Both together. Partitions of both begin where they began first, and end where `later` ends."""
        ranges = dict(self.ranges)
        for partition, (first, stop) in later.ranges.items():
            ranges[partition] = (ranges.get(partition, (first, stop))[0], stop)
        return replace(later, ranges=ranges)

    def without(self, later: Progress) -> Progress | None:
        """The offsets that were there before `later` was added; None if none were. Their job is not known."""
        ranges = {}
        for partition, (first, stop) in self.ranges.items():
            begun = later.ranges.get(partition, (stop, stop))[0]
            if first < begun:
                ranges[partition] = (first, begun)
        return replace(self, ranges=ranges, job="") if ranges else None

    def dump(self) -> str:
        """The progress as JSON, in one line."""
        ranges = {str(partition): list(self.ranges[partition]) for partition in sorted(self.ranges)}
        return json.dumps({"topic": self.topic, "topic_id": self.topic_id, "job": self.job, "ranges": ranges})

    @classmethod
    def load(cls, text: str) -> Progress:
        """Parse the text of `dump`. Raises CorruptSegment for any other text."""
        try:
            saved: Any = json.loads(text)
            ranges = {int(number): (int(first), int(stop)) for number, (first, stop) in saved["ranges"].items()}
            if any(not 0 <= first <= stop for first, stop in ranges.values()):
                raise ValueError(f"ranges {ranges}")
            return cls(str(saved["topic"]), str(saved["topic_id"]), ranges, str(saved["job"]))
        except MISSHAPEN as error:
            raise CorruptSegment(f"not the progress of a topic: {type(error).__name__}: {error}") from None


def starting_offsets(progress: Progress, partitions: Iterable[int]) -> str:
    """The JSON that Spark's Kafka source takes as `startingOffsets`, to go on where the progress ends.

    `partitions` are further partitions of the topic, of which nothing is there yet: they begin with the earliest one.
    """
    ends = dict.fromkeys(partitions, _EARLIEST) | progress.ends
    return json.dumps({progress.topic: {str(number): ends[number] for number in sorted(ends)}})

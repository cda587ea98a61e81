"""The locator that asks a service (`remote-fetch serve`).

Rules of the file:

- The brokers describe topics: their ids and partitions, and whether READ is allowed. The service only has segments.
- If the service cannot be asked, or does not accept the credentials, that is reported once, and no read ends for it:
  the broker can answer. After a pause the service is asked again.
- An answer that is wrong is an error of the partition that it is about.
- A refusal of the service alone does not count as one of the brokers. If it says that READ is refused, they are asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from remote_fetch.errors import CorruptSegment, FallsBackError, RetriableError, SegmentNotFound, Unlocatable
from remote_fetch.failures.broker_errors import refusal_of
from remote_fetch.locate.cluster import Cluster
from remote_fetch.locate.described import all_described_partitions, described_partitions
from remote_fetch.locate.locator import Locator
from remote_fetch.locate.service_client import ReadRefused, ServiceClient, Tagged
from remote_fetch.locate.timeline import FoundSegment, Timeline
from remote_fetch.model import RemoteLogSegmentId, TopicIdPartition

__all__ = ["ServiceLocator"]

_MAX_SEGMENTS = 2_000_000
"""The most segments of one partition that are held."""
_REST_S = 10.0
"""How long the service is left alone after it could not answer a question in time."""
_UNASKED_S = 3600.0
"""How long a timeline is kept that is not asked for. Its topic may be deleted, or other processes read it."""


class ServiceLocator(Locator):
    """Timelines from a service, for topics of `cluster`.

    `say` is called, once, with the reason why the service cannot locate segments. `recovered` is called when it can
    again.
    """

    def __init__(
        self,
        cluster: Cluster,
        client: ServiceClient,
        *,
        say: Callable[[str], None],
        recovered: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._client = cluster, client
        self._say, self._recovered = say, recovered
        self._clock = clock
        # With the tag and the time of the service's answer.
        self._known: dict[TopicIdPartition, tuple[Timeline, str, float]] = {}
        self._looked_s = clock()
        self._noting = threading.Lock()  # for `_is_failing`
        self._is_failing = False
        self._rests_until_s = float("-inf")

    def partitions(self, topic: str | None, numbers: Collection[int] | None = None) -> tuple[TopicIdPartition, ...]:
        """All partitions of an existing topic (NAME or NAME:ID), tiered or not, for any `numbers`.

        For all topics (None): those that this principal may READ. Raises as `described_partitions`.
        """
        return all_described_partitions(self._cluster) if topic is None else described_partitions(self._cluster, topic)

    def timeline(self, partition: TopicIdPartition) -> Timeline:
        """The readable segments of a partition, by the last answer about it; asks if there was none.

        Raises KafkaException (TOPIC_AUTHORIZATION_FAILED) if the brokers refuse READ; CorruptSegment and Unlocatable
        for an answer about this partition that is wrong.
        """
        known = self._known.get(partition)
        return self.refresh(partition) if known is None else known[0]

    def refresh(self, partition: TopicIdPartition) -> Timeline:
        """As `timeline`, after a new question. If the service has no answer, the last one counts, if there was one."""
        if self._clock() < self._rests_until_s:
            return self._before(partition)
        try:
            timeline, tag = self._asked(partition)
        except ReadRefused as error:
            return self._refused(partition, error)
        except SegmentNotFound as error:
            self._answers()
            raise Unlocatable(error.message, **partition.place) from None
        except CorruptSegment as error:
            raise error.at(**partition.place) from None
        except (FallsBackError, RetriableError) as error:
            self._cannot(str(error))
            self._rests_until_s = self._clock() + _REST_S
            return self._before(partition)
        self._answers()
        self._known[partition] = timeline, tag, self._clock()
        self._drop_unasked()
        return timeline

    def _drop_unasked(self) -> None:
        """Forget, once in a while, the timelines that were not asked for lately. A later question gets them again."""
        now_s = self._clock()
        if now_s - self._looked_s < _UNASKED_S / 4:
            return
        self._looked_s = now_s
        for partition, (_, _, answered_s) in list(self._known.items()):
            if now_s - answered_s > _UNASKED_S:
                self._known.pop(partition, None)

    def _asked(self, partition: TopicIdPartition) -> tuple[Timeline, str]:
        """The timeline as the service has it now, and its tag. A timeline that has not changed is not sent again."""
        known = self._known.get(partition)
        first = self._client.segments(partition, known_tag="" if known is None else known[1])
        if first is None:
            return (Timeline(partition, (), ()), "") if known is None else known[:2]
        found: dict[RemoteLogSegmentId, FoundSegment] = {}
        orphans = malformed = 0
        tag = first.tag
        for page, tag_of_page in self._pages(partition, first):
            before = len(found)
            if tag_of_page != tag:
                tag = ""  # pages of two states: the next question gets all of them again
            for segment, order, epoch in zip(page.segments, page.finish_order, page.upload_epochs, strict=True):
                found[segment.segment_id] = segment, order, epoch
            orphans, malformed = max(orphans, page.orphan_updates), max(malformed, page.malformed_records)
            if len(found) > _MAX_SEGMENTS:
                raise CorruptSegment(f"the service gave more than {_MAX_SEGMENTS} segments of one partition")
            if len(found) == before and page.next_offset is not None:
                raise CorruptSegment("the service gave a page without a segment that is not the last one")
        timeline = Timeline.of_finished(partition, found.values())
        return replace(timeline, orphan_updates=orphans, malformed_records=malformed), tag

    def _pages(self, partition: TopicIdPartition, tagged: Tagged) -> Iterator[Tagged]:
        yield tagged
        while tagged.page.next_offset is not None:
            following = self._client.segments(partition, tagged.page.next_offset)
            assert following is not None, "no tag was sent"
            tagged = following
            yield tagged

    def _before(self, partition: TopicIdPartition) -> Timeline:
        known = self._known.get(partition)
        return Timeline(partition, (), ()) if known is None else known[0]

    def _refused(self, partition: TopicIdPartition, error: ReadRefused) -> Timeline:
        """Raise the brokers' refusal. If they do not refuse, raise Unlocatable: the service gives no segments."""
        self._known.pop(partition, None)
        if not self._cluster.describe(partition.topic).may_read:
            raise refusal_of("READ", partition.topic) from None
        raise Unlocatable(f"{error.message}, but they allow it to this client", **partition.place) from None

    def _cannot(self, why: str) -> None:
        with self._noting:  # threads that ask about several partitions fail at the same moment
            if not self._is_failing:
                self._say(why)
            self._is_failing = True

    def _answers(self) -> None:
        with self._noting:  # else a failure of this moment would be reported, and its end never
            if self._is_failing:
                self._recovered()
            self._is_failing = False

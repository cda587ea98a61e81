"""One answer about segments: found in the timelines, decided, signed and encoded, in a thread.

Rules of the file:

- Only segments in the state COPY_SEGMENT_FINISHED are in a timeline, and only their own objects are signed.
- A segment whose objects may not be signed is answered without them, counted, and logged once.
- If the store does not answer, the answer is a 503: the client then asks a broker, as it would without this service.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException

from remote_fetch.errors import RemoteFetchError
from remote_fetch.model import IsolationLevel, RemoteLogSegmentMetadata, TopicIdPartition
from remote_fetch.prepare.decided import DecidedRanges
from remote_fetch.service.answers import Page, Rank, as_bytes, page_of, segment_json, segments_json
from remote_fetch.service.metrics import Metrics
from remote_fetch.service.queries import SegmentsQuery
from remote_fetch.service.refusals import Refusal
from remote_fetch.service.settings import MAX_ANSWER_BYTES, MAX_COMMITTED_SEGMENTS, MAX_SEGMENTS
from remote_fetch.service.tags import Tags
from remote_fetch.session.locator_kinds import with_real_ends
from remote_fetch.session.session import Session

__all__ = ["Tagged", "Vending"]

_LOG = logging.getLogger("remote_fetch.service")
_RETRY_S = 5.0
_MOST_LINES = 1_000
"""Most different lines about what was not answered, so that odd metadata does not fill the log."""


class Tagged(NamedTuple):
    """An answer, None if the client has it, and its entity tag, "" for one with URLs: these are new each time."""

    body: bytes | None
    tag: str


class Vending:
    """Answers from one session. Called from several threads."""

    def __init__(self, session: Session, metrics: Metrics, url_lifetime_s: int) -> None:
        self._session = session
        self._metrics = metrics
        self._url_lifetime_s = url_lifetime_s
        self._ranges = DecidedRanges(session)
        self._tags = Tags()
        self._said: set[str] = set()

    def storage(self) -> bytes:
        """The layout of the segments, for clients that read them."""
        layout, options = self._session.vendor.layout()
        return as_bytes({"layout": layout, "layout_options": options})

    def segments(self, partition: TopicIdPartition, query: SegmentsQuery, known_tag: str | None) -> Tagged:
        """The answer to a request. Raises Refusal: 404 for an unknown segment, 503 if the store does not answer."""
        try:
            return self._tagged(partition, query, known_tag)
        except KafkaException as error:
            raise Refusal(503, "BROKERS_UNAVAILABLE", f"the brokers answer: {error.args[0].str()}", _RETRY_S) from None
        except RemoteFetchError as error:
            self._say(f"no answer about {partition.topic_partition}: {error}")
            code = str(error.kind).upper().replace("-", "_")
            raise Refusal(503, code, f"the storage does not tell: {error.message}", _RETRY_S) from None

    def _tagged(self, partition: TopicIdPartition, query: SegmentsQuery, known_tag: str | None) -> Tagged:
        locator = self._session.locator
        whole = with_real_ends(locator, locator.timeline(partition))  # a client takes each end for the real one
        tag = "" if query.kinds else self._tags.of(whole)
        if tag and tag == known_tag:
            return Tagged(None, tag)
        self._session.note_unusable(whole)

        def encode(segment: RemoteLogSegmentMetadata, rank: Rank) -> bytes:
            urls = self._signed(segment, query.kinds) if query.kinds else None
            return as_bytes(segment_json(segment, rank, urls))

        if query.segment is not None:
            for segment, *rank in whole.found():
                if segment.segment_id.id == query.segment:
                    page = Page((encode(segment, Rank(*rank)),), None)
                    return Tagged(segments_json(whole, page, None, ()), tag)
            raise Refusal(404, "UNKNOWN_SEGMENT", "the partition has no readable segment of this id")
        is_committed = query.isolation is IsolationLevel.READ_COMMITTED
        stop = (whole.end_offset or 0) if query.stop_offset is None else query.stop_offset
        page = page_of(
            whole,
            query.first_offset,
            encode,
            last_offset=stop - 1,
            max_segments=MAX_COMMITTED_SEGMENTS if is_committed else MAX_SEGMENTS,
            max_bytes=MAX_ANSWER_BYTES,
        )
        if page.is_crowded:
            raise Refusal(503, "TOO_MANY_SEGMENTS", "too many segments begin at one offset for one answer", _RETRY_S)
        if not is_committed:
            return Tagged(segments_json(whole, page, None, ()), tag)
        told = self._ranges.of(whole, query.first_offset, stop if page.next_offset is None else page.next_offset)
        return Tagged(segments_json(whole, page, told.stable_offset, told.aborted), tag)

    def _signed(self, segment: RemoteLogSegmentMetadata, kinds: tuple[str, ...]) -> Mapping[str, str]:
        signed = self._session.vendor.sign(segment, kinds, self._url_lifetime_s)
        self._metrics.signed(len(signed.urls))
        if signed.refused is not None:
            self._metrics.unsigned()
            place = segment.topic_id_partition.topic_partition
            self._say(f"{place}: segments without URLs: {signed.refused}")
        return signed.urls

    def _say(self, text: str) -> None:
        """Log a text once, and no more than so many texts: they have names and offsets in them."""
        if text not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(text)
            _LOG.warning("%s", text)

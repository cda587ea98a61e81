"""Checks of a store: open, list, read the head of a segment, read an index; and all of them for `config check`.

Rules of the file:

- A check is small: one name of a listing, one range, one index.
- A check is skipped, with the reason, if an earlier check has shown that it cannot pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from remote_fetch.amounts import human_bytes
from remote_fetch.checks.check import Check, State, failed, tried
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, CorruptSegment, RemoteFetchError, Unlocatable, UnsupportedFormat
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentLister
from remote_fetch.formats.batches import HEADER_BYTES, read_header
from remote_fetch.locate.listing import topic_names
from remote_fetch.locate.topics import logless_topic, split_topic, unknown_topic
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata, RemoteLogSegmentState
from remote_fetch.session.session import Session
from remote_fetch.session.surveyor import listings_of, surveyed

__all__ = [
    "SEGMENT",
    "Listed",
    "config_checks",
    "listed",
    "located",
    "needs_no_listing",
    "open_fetcher",
    "open_session",
    "segment_checks",
]

SEGMENT = "segment"
"""The name of the check that reads the head of a segment."""
_HEAD_BYTES = 4096
_EMPTY_HINT = (
    "another bucket, prefix or layout? What a broker's plug-in calls its key prefix is an option of the layout, to the "
    "letter, and no part of the URL"
)


class Listed(NamedTuple):
    """The result of looking for a segment by listing.

    - `segment` is the first segment that was found, None if none was.
    - `better` is a configuration key with the value that fits what was found instead.
    - `error` is the error of the store that ended the listing.
    """

    check: Check
    segment: RemoteLogSegmentMetadata | None = None
    better: tuple[str, str] | None = None
    error: RemoteFetchError | None = None


def config_checks(config: Config, topic: str | None) -> Iterator[Check]:
    """All checks of a configuration, in order."""
    url = config.settings.storage_url
    check, fetcher = tried("fetcher", url, lambda: open_fetcher(config))
    yield check
    if fetcher is None:
        return
    try:
        has_broker = "bootstrap.servers" in config.librdkafka
        found = listed(config, fetcher, topic, has_broker=has_broker)
        yield found.check
        check, session = tried("locator", url, lambda: open_session(config))
        yield check
        if session is None:
            return
        with session:
            segment = found.segment
            if needs_no_listing(config, has_broker=has_broker):
                check, first = tried("metadata", url, lambda: located(session, topic))
                yield check
                segment = first or segment
            yield from segment_checks(session, segment)
    finally:
        fetcher.close()


def open_fetcher(config: Config) -> tuple[str, RemoteStorageFetcher]:
    """The fetcher, and its name with that of its layout. Raises ConfigError and the errors of `configure`."""
    fetcher = load_fetcher(config)
    name = type(fetcher).__name__
    layout = getattr(fetcher, "layout_name", None)  # a third-party fetcher need not have it
    return name if layout is None else f"{name} with {layout}", fetcher


def open_session(config: Config) -> tuple[str, Session]:
    """A session, and the name of its locator. Raises the errors of `Session.open`."""
    session = Session.open(config)
    return session.configured_locator.name, session


def needs_no_listing(config: Config, *, has_broker: bool) -> bool:
    """Whether the brokers or saved timelines tell the segments."""
    return has_broker or config.settings.locator == "snapshot"


def listed(config: Config, fetcher: RemoteStorageFetcher, topic: str | None, *, has_broker: bool) -> Listed:
    """Look for the first segment of a topic (None: any) by listing."""
    if not isinstance(fetcher, SegmentLister):
        return Listed(Check("list", State.SKIPPED, "the fetcher cannot list segments"))
    found, is_logless = None, False
    try:
        segments = fetcher.list_segments(None if topic is None else split_topic(topic)[0])
        for one in segments:
            if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                found = one
                break
            is_logless = True
    except RemoteFetchError as error:
        check = failed("list", config.settings.storage_url, error)
        if isinstance(error, (Unlocatable, UnsupportedFormat)) and needs_no_listing(config, has_broker=has_broker):
            return Listed(Check("list", State.SKIPPED, check.text))
        better = (error.key, error.better) if isinstance(error, ConfigError) and error.key and error.better else None
        return Listed(check, better=better, error=error)
    if found is None:
        survey = surveyed(fetcher)
        if survey is not None and survey.found is not None:
            text = f"no segment in the remote storage {survey.place}: {survey.found}"
            return Listed(Check("list", State.FAILED, text, survey.hint or _EMPTY_HINT), better=survey.better)
        if topic is not None and is_logless:
            logless = logless_topic(topic, survey)
            return Listed(Check("list", State.FAILED, logless.message, logless.hint))
        if topic is not None and (names := _topics_there(fetcher)):
            unknown = unknown_topic(topic, names, survey)
            return Listed(Check("list", State.FAILED, unknown.message, unknown.hint))
        what = "no segment" if topic is None else f"no segment of topic {topic}"
        return Listed(Check("list", State.FAILED, f"{what} in the remote storage", _EMPTY_HINT))
    return Listed(Check("list", State.OK, f"the first listed is {_place(found)}"), found)


def _topics_there(fetcher: SegmentLister) -> set[str]:
    """The names of some topics. None of them if the store refuses this listing."""
    try:
        return topic_names(listings_of(fetcher))
    except RemoteFetchError:
        return set()


def located(session: Session, topic: str | None) -> tuple[str, RemoteLogSegmentMetadata | None]:
    """The first segment of a topic (None: any) by the locator.

    Raises the locator's errors, and Unlocatable if the locator cannot be asked now: then it shows no segments.
    """
    for partition in session.locator.partitions(topic):
        segments = session.locator.timeline(partition).segments
        if segments:
            return f"the first is {_place(segments[0])}", segments[0]
    session.configured_locator.check()
    return "no segments", None


def _place(segment: RemoteLogSegmentMetadata) -> str:
    partition = segment.topic_id_partition
    return f"{partition.topic_partition}, offset {segment.start_offset}"


def segment_checks(session: Session, segment: RemoteLogSegmentMetadata | None) -> Iterator[Check]:
    """Read the head and the offset index of a segment. None: both checks are skipped."""
    if segment is None:
        for name in (SEGMENT, "index"):
            yield Check(name, State.SKIPPED, "no segment is known")
        return
    url = session.config.settings.storage_url
    yield tried(SEGMENT, url, lambda: (_head(session, segment), None))[0]
    yield tried("index", url, lambda: (_index(session, segment), None))[0]


def _head(session: Session, segment: RemoteLogSegmentMetadata) -> str:
    data = session.reader.read(RangeRequest(segment, 0, _HEAD_BYTES))
    max_batch_bytes = session.config.settings.max_batch_bytes
    if not len(data) and not segment.segment_size_in_bytes:
        return "an empty log, as compaction leaves one"
    header = read_header(data, 0, position=0, max_batch_bytes=max_batch_bytes)
    if len(data) < HEADER_BYTES or (isinstance(header, int) and len(data) < _HEAD_BYTES):
        raise CorruptSegment(f"the segment has {len(data)} bytes, and no whole record batch")
    base_offset = int.from_bytes(data[:8], "big", signed=True)
    if not segment.start_offset <= base_offset:
        raise CorruptSegment(f"the segment begins with offset {base_offset}, before its own {segment.start_offset}")
    return f"{human_bytes(len(data))}, the first batch begins with offset {base_offset}"


def _index(session: Session, segment: RemoteLogSegmentMetadata) -> str:
    data = session.reader.read_index(segment, IndexType.OFFSET)
    return "no offset index: segments are read from their beginning" if data is None else human_bytes(len(data))

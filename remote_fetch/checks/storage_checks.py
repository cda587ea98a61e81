"""The checks of `remote-fetch config check`: open, list, read the head of a segment, read an index, ask the brokers.

Rules of the file:

- A check is small: one name of a listing, one range, one index.
- The error of a check becomes its text, with the hint of the error or the usual cause.
- A check is skipped, with the reason, if an earlier check has shown that it cannot pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeVar

from remote_fetch.amounts import human_bytes
from remote_fetch.cli.app import broker_says
from remote_fetch.config import Config
from remote_fetch.errors import (
    CorruptSegment,
    RemoteFetchError,
    SegmentNotFound,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
    Unlocatable,
    UnsupportedFormat,
)
from remote_fetch.fetch.readahead import RangeRequest
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentLister
from remote_fetch.formats.batches import HEADER_BYTES, read_header
from remote_fetch.locate.topics import split_topic
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.session.session import Session
from remote_fetch.session.surveyor import surveyed

__all__ = ["Check", "State", "checks"]

T = TypeVar("T")

_HEAD_BYTES = 4096
_EMPTY_HINT = (
    "another bucket, prefix or layout? What a broker's plug-in calls its key prefix is an option of the layout, to the "
    "letter, and no part of the URL"
)


def checks(config: Config, topic: str | None) -> Iterator[Check]:
    """All checks of a configuration, in order."""
    check, fetcher = _tried(config, "fetcher", lambda: _open_fetcher(config))
    yield check
    if fetcher is None:
        return
    try:
        has_broker = "bootstrap.servers" in config.librdkafka
        check, segment = _listed(config, fetcher, topic, has_broker=has_broker)
        yield check
        check, session = _tried(config, "locator", lambda: _open_session(config))
        yield check
        if session is None:
            return
        with session:
            if has_broker or config.settings.locator == "snapshot":
                check, located = _tried(config, "metadata", lambda: _located(session, topic))
                yield check
                segment = located or segment
            yield from _read(config, session, segment)
    finally:
        fetcher.close()


def _open_fetcher(config: Config) -> tuple[str, RemoteStorageFetcher]:
    fetcher = load_fetcher(config)
    name, layout = (
        type(fetcher).__name__,
        getattr(fetcher, "layout_name", None),
    )  # a third-party fetcher need not have it
    return name if layout is None else f"{name} with {layout}", fetcher


def _open_session(config: Config) -> tuple[str, Session]:
    session = Session.open(config)
    return session.locator_name, session


def _listed(
    config: Config, fetcher: RemoteStorageFetcher, topic: str | None, *, has_broker: bool
) -> tuple[Check, RemoteLogSegmentMetadata | None]:
    if not isinstance(fetcher, SegmentLister):
        return Check("list", State.SKIPPED, "the fetcher cannot list segments"), None
    try:
        found = next(fetcher.list_segments(None if topic is None else split_topic(topic)[0]), None)
    except (Unlocatable, UnsupportedFormat) as error:
        if has_broker:  # the broker knows the segments, so no listing is needed
            return Check("list", State.SKIPPED, _said(error)), None
        return Check("list", State.FAILED, _said(error), error.hint), None
    except RemoteFetchError as error:
        return Check("list", State.FAILED, _said(error), error.hint or _hint(config, error)), None
    if found is None:
        survey = surveyed(fetcher)
        if survey is not None and survey.found is not None:
            text = f"no segment in the remote storage {survey.place}: {survey.found}"
            return Check("list", State.FAILED, text, survey.hint or _EMPTY_HINT), None
        what = "no segment" if topic is None else f"no segment of topic {topic}"
        return Check("list", State.FAILED, f"{what} in the remote storage", _EMPTY_HINT), None
    return Check("list", State.OK, f"the first is {_place(found)}"), found


def _located(session: Session, topic: str | None) -> tuple[str, RemoteLogSegmentMetadata | None]:
    for partition in session.locator.partitions(topic):
        segments = session.locator.timeline(partition).segments
        if segments:
            return f"the first is {_place(segments[0])}", segments[0]
    return "no segments", None


def _place(segment: RemoteLogSegmentMetadata) -> str:
    partition = segment.topic_id_partition
    return f"{partition.topic}-{partition.partition}, offset {segment.start_offset}"


def _read(config: Config, session: Session, segment: RemoteLogSegmentMetadata | None) -> Iterator[Check]:
    if segment is None:
        for name in ("segment", "index"):
            yield Check(name, State.SKIPPED, "no segment is known")
        return
    yield _tried(config, "segment", lambda: (_head(session, segment), None))[0]
    yield _tried(config, "index", lambda: (_index(session, segment), None))[0]


def _head(session: Session, segment: RemoteLogSegmentMetadata) -> str:
    data = session.reader.read(RangeRequest(segment, 0, _HEAD_BYTES))
    max_batch_bytes = session.config.settings.max_batch_bytes
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

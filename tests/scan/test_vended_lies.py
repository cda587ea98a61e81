"""A service that lies about where objects are: the reader gives the right rows, or an error that names the object.

Rules of the file:

- The fetcher is `vended` over an HTTP server. The service is a double whose answers a lie changes, for the objects of
  one kind of one segment.
- The log has aborted transactions in each segment, so that a lie about any index would show.
- With a broker the rows are right in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

import pytest

from fetchers.layouts.kafka_local import KafkaLocalLayout
from fetchers.vended import VendedFetcher
from remote_fetch.errors import CorruptSegment, StorageDenied, Unlocatable
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata, Uuid
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import kafka_local_files
from tests.cases import check_each, of_a_change
from tests.fetchers.vending import Locate, Source, at, opened
from tests.scan.bucket import COMMITTED, DENSE, UNCOMMITTED, expected_rows, read, snapshot_config
from tests.stores.range_server import NO_KEY, RangeServer
from tests.stores.stand_in import read_with_broker

KINDS = ("log", *(kind.value for kind in IndexType))
SECRET = "s3cret-signature"

Lie = Callable[[str, str, "Vended"], str | None]
"""From the server's URL and an object's name to another URL; None: no URL."""


class Vended:
    """A log in a store behind a service. `server` has the objects, and under `wrong/` those of the next segment."""

    def __init__(self, server: RangeServer) -> None:
        self.server = server
        self.log = transactional_log()
        self.segments = self.log.segments(DENSE)
        self.namer = KafkaLocalLayout()
        for segment, following in zip(self.segments, [*self.segments[1:], self.segments[0]], strict=True):
            server.files.update(kafka_local_files(segment))
            names = self.namer.object_names(segment.metadata)
            for kind, data in files_of(following).items():
                server.files[f"wrong/{names[kind]}"] = data
        self.others = self.namer.object_names(self.segments[1].metadata)

    def fetcher(self, lie: Lie | None, number: int, kind: str) -> VendedFetcher:
        """A reader to which the service lies about the objects of a kind of one segment."""
        lied_about = self.segments[number].metadata

        def locate(metadata: RemoteLogSegmentMetadata, names: Mapping[str, str]) -> Mapping[str, str]:
            urls = dict(at(self.server.url, f"sig={SECRET}")(metadata, names))
            if lie is not None and metadata.segment_id == lied_about.segment_id:
                changed = lie(self.server.url, names[kind], self)
                del urls[names[kind]]
                urls |= {} if changed is None else {names[kind]: changed}
            return urls

        truthful: Locate = locate
        return opened(Source(self.namer, truthful))


def files_of(segment: BuiltSegment) -> dict[str, bytes]:
    indexes = {kind.value: segment.index(kind) for kind in IndexType}
    return {"log": segment.log, **{kind: data for kind, data in indexes.items() if data is not None}}


def transactional_log() -> LogBuilder:
    """Three segments, each with records of a transaction that is aborted in it, and of one that is committed."""
    log = LogBuilder()
    for number in range(3):
        log.append_batch([Record(n, n, b"k", b"plain") for n in range(5)])
        for producer, aborts in ((7 + number, True), (70 + number, False)):
            log.begin(producer)
            log.append_batch([Record(n, n, b"k", b"transactional") for n in range(3)], producer_id=producer)
            log.abort(producer) if aborts else log.commit(producer)
        log.roll()
    return log


URL_LIES: Mapping[str, Lie] = {
    "another key": lambda url, name, vended: f"{url}/secrets/passwords.txt?sig={SECRET}",
    "another segment": lambda url, name, vended: f"{url}/{vended.others['log']}?sig={SECRET}",
    "another topic": lambda url, name, vended: f"{url}/{name.replace('topic-0', 'secrets-0')}?sig={SECRET}",
    "the name in the query": lambda url, name, vended: f"{url}/{vended.others['offset']}?sig={SECRET}&x=/{name}",
    "another id": lambda url, name, vended: f"{url}/{name[:-40]}{Uuid(bytes(16))}{name[-18:]}?sig={SECRET}",
    "another host without TLS": lambda url, name, vended: f"http://192.0.2.1/{name}?sig={SECRET}",
}
"""Lies that the URL itself shows: nothing is asked of the store."""

BYTE_LIES: Mapping[str, Lie] = {
    "bytes of another segment": lambda url, name, vended: f"{url}/wrong/{name}?sig={SECRET}",
    "an object that is not there": lambda url, name, vended: f"{url}/none/{name}?sig={SECRET}",
    "an expired signature": lambda url, name, vended: f"{url}/{name}?sig=expired",
    "no URL": lambda url, name, vended: None,
}
"""Lies that only the answer of the store shows."""

HARMLESS: Mapping[str, Lie] = {
    "no life": lambda url, name, vended: f"{url}/{name}?sig={SECRET}&X-Amz-Expires=0",
    "a negative life": lambda url, name, vended: f"{url}/{name}?sig={SECRET}&X-Amz-Expires=-10",
    "an absurd life": lambda url, name, vended: f"{url}/{name}?sig={SECRET}&X-Amz-Expires={'9' * 400}",
    "an end long ago": lambda url, name, vended: f"{url}/{name}?sig={SECRET}&se=1970-01-01T00:00:00Z",
    "an end in the far future": lambda url, name, vended: f"{url}/{name}?sig={SECRET}&se=9999-12-31T00:00:00Z",
}


@pytest.fixture(scope="module")
def vended() -> Iterator[Vended]:
    with RangeServer(signature=SECRET, missing=NO_KEY) as server:
        yield Vended(server)


BELIEVED = ("bytes of another segment", "an object that is not there")
"""Lies that are believed of a transaction index, as in a bucket, until an abort marker contradicts."""


def cases(lies: Mapping[str, Lie], *, believed: bool) -> list[tuple[str, int, str]]:
    """Each lie about each kind of object of two segments: those that are believed, or the others."""
    found = product(lies, (0, 2), KINDS)
    return [case for case in found if (case[0] in BELIEVED and case[2] == "transaction") is believed]


def test_the_truth(vended: Vended) -> None:
    for isolation in (UNCOMMITTED, COMMITTED):
        config = snapshot_config(segment.metadata for segment in vended.segments)
        outcome = read(vended.fetcher(None, 0, "log"), isolation=isolation, config=config)
        right = expected_rows(vended.log.expected(isolation, 0, vended.log.next_offset))
        assert outcome.fine() == right
    assert len(right) == 3 * 8


@pytest.mark.slow
@pytest.mark.parametrize("isolation", of_a_change([COMMITTED, UNCOMMITTED]), ids=str)
def test_right_rows_or_an_error_that_names_the_object(vended: Vended, isolation: object) -> None:
    lies = {**URL_LIES, **BYTE_LIES, **HARMLESS}
    config = snapshot_config(segment.metadata for segment in vended.segments)
    level = COMMITTED if isolation is COMMITTED else UNCOMMITTED
    right = expected_rows(vended.log.expected(level, 0, vended.log.next_offset))
    failed: dict[str, int] = {}

    def check(case: tuple[str, int, str]) -> None:
        name, number, kind = case
        outcome = read(vended.fetcher(lies[name], number, kind), isolation=level, config=config)
        assert outcome.rows == right[: len(outcome.rows)]
        if outcome.error is None:
            assert outcome.rows == right
            return
        failed[name] = failed.get(name, 0) + 1
        text = str(outcome.error)
        assert isinstance(outcome.error, CorruptSegment | StorageDenied | Unlocatable)
        assert str(vended.segments[number].metadata.segment_id.id) in text, text
        assert SECRET not in text

    check_each(cases(lies, believed=False), check)
    assert failed.keys() == URL_LIES.keys() | BYTE_LIES.keys()  # each of these was noticed, and no harmless one


@pytest.mark.slow
def test_with_a_broker_all_rows(vended: Vended) -> None:
    lies = {**URL_LIES, **BYTE_LIES}
    config = {
        "fetch.remote.retry.backoff.ms": 1,
        **snapshot_config(segment.metadata for segment in vended.segments),
    }
    right = expected_rows(vended.log.expected(COMMITTED, 0, vended.log.next_offset))

    def check(case: tuple[str, int, str]) -> None:
        name, number, kind = case
        stream = read_with_broker(vended.fetcher(lies[name], number, kind), vended.log, COMMITTED, config)
        assert stream.rows == right

    check_each(cases(lies, believed=False), check)


def test_a_transaction_index_that_lies_is_believed_until_a_marker_contradicts(vended: Vended) -> None:
    """This is as in a bucket. Only the store's answer is false here, because a foreign URL is not followed.

    The index of an earlier segment is not believed: its markers lie before the segment.
    """
    config = snapshot_config(segment.metadata for segment in vended.segments)

    def check(case: tuple[str, int, str]) -> None:
        name, number, kind = case
        outcome = read(vended.fetcher(BYTE_LIES[name], number, kind), isolation=COMMITTED, config=config)
        assert isinstance(outcome.error, CorruptSegment)
        is_earlier = "lies before the segment" in str(outcome.error)
        assert is_earlier or "no transaction index says so" in str(outcome.error)
        assert str(vended.segments[number].metadata.segment_id.id) in str(outcome.error)

    check_each(cases(BYTE_LIES, believed=True), check)


def test_urls_that_lie_ask_the_store_nothing(vended: Vended) -> None:
    def check(case: tuple[str, int, str]) -> None:
        name, number, kind = case
        fetcher = vended.fetcher(URL_LIES[name], number, kind)
        vended.server.asked.clear()
        metadata = vended.segments[number].metadata
        with pytest.raises(CorruptSegment, match="gives a URL for the object that"):
            fetcher.fetch_log_segment(metadata, 0, 9) if kind == "log" else fetcher.fetch_index(
                metadata, IndexType(kind)
            )
        assert vended.server.asked == []
        fetcher.close()

    check_each(cases(URL_LIES, believed=False), check)

"""The request for segments: each part taken as it is meant, anything else refused."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.model import MAX_OFFSET, OBJECT_KINDS, IsolationLevel, Uuid
from remote_fetch.service.queries import SegmentsQuery, parse_query, parse_segments
from remote_fetch.service.refusals import Refusal
from tests.cases import each_of
from tests.searches import examples

ID = Uuid(bytes(range(16)))


def parsed(query: str, topic: str = "orders", partition: str = "3") -> SegmentsQuery:
    return parse_segments(topic, partition, parse_query(query.encode()))


def test_nothing_given() -> None:
    assert parsed("") == SegmentsQuery("orders", 3, 0, None, IsolationLevel.READ_UNCOMMITTED, (), None)


def test_everything_given() -> None:
    assert parsed(f"from=5&to=9&isolation=read_committed&objects=log,producer_snapshot&segment={ID}") == SegmentsQuery(
        "orders", 3, 5, 9, IsolationLevel.READ_COMMITTED, ("log", "producer-snapshot"), ID
    )
    assert parsed("objects=all").kinds == OBJECT_KINDS
    assert parsed("objects=transaction,log,log").kinds == ("log", "transaction")


@each_of(
    "query",
    [
        "from=-1", "from=+1", "from=1.0", "from=1e3", "from=", "from=%D9%A1", f"from={MAX_OFFSET + 1}", "to=x",
        "from=5&to=4", "isolation=committed", "isolation=", "objects=", "objects=log,", "objects=manifest",
        "objects=all,log", "segment=abc", f"segment={ID}", "From=1", "unknown=1", "from=1&from=1", "a=%ff",
        "&".join(f"a{number}=1" for number in range(20)),
    ],
)  # fmt: skip
def test_refused(query: str) -> None:
    with pytest.raises(Refusal) as caught:
        parsed(query)
    assert (caught.value.status, caught.value.code) == (400, "INVALID_REQUEST")


@each_of("topic", ["", ".", "..", "a/b", "a b", "a\n", "ö", "a" * 250])
def test_names_that_no_topic_has(topic: str) -> None:
    with pytest.raises(Refusal) as caught:
        parsed("", topic)
    assert (caught.value.status, caught.value.code) == (400, "INVALID_TOPIC_EXCEPTION")


@each_of("partition", ["", "-1", "2147483648", "x", "1 ", "٣"])
def test_numbers_that_no_partition_has(partition: str) -> None:
    with pytest.raises(Refusal):
        parsed("", partition=partition)


@examples(300)
@given(st.binary(max_size=100))
def test_any_query_is_taken_or_refused(raw: bytes) -> None:
    try:
        found = parse_segments("orders", "0", parse_query(raw))
    except Refusal as refusal:
        status = refusal.status
    else:
        status = 200
        assert 0 <= found.first_offset <= MAX_OFFSET
    assert status in (200, 400)


@examples(200)
@given(
    st.integers(0, MAX_OFFSET), st.none() | st.integers(0, MAX_OFFSET + 1), st.sampled_from(IsolationLevel),
    st.sets(st.sampled_from(OBJECT_KINDS)), st.none() | st.binary(min_size=16, max_size=16),
)  # fmt: skip
def test_what_is_written_is_read(
    first: int, stop: int | None, isolation: IsolationLevel, kinds: set[str], segment: bytes | None
) -> None:
    fields: dict[str, object] = {"from": first, "isolation": isolation.value}
    fields |= {} if stop is None else {"to": stop}
    fields |= {} if not kinds else {"objects": ",".join(sorted(kinds))}
    fields |= {} if segment is None else {"segment": Uuid(segment)}
    is_wrong = (stop is not None and stop < first) or (segment is not None and not kinds)
    try:
        found = parsed(urlencode(fields))
    except Refusal:
        assert is_wrong
    else:
        wanted = None if segment is None else Uuid(segment)
        assert not is_wrong
        assert found == SegmentsQuery("orders", 3, first, stop, isolation, found.kinds, wanted)
        assert set(found.kinds) == kinds

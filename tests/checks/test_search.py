"""Which records match, beside Python's own comparison of each; and where producers put a key."""

from __future__ import annotations

import re
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.checks.search import Conditions, partition_of
from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError

SCHEMA = schema_for(("key", "value", "headers"))
few = st.sampled_from([None, b"", b"a", b"ab", b"b\xff", b"A1"])
headers = st.lists(st.tuples(st.sampled_from(["h", "x", ""]), few), max_size=3)
rows = st.lists(st.tuples(few, few, headers), max_size=12)


def batch_of(records: list[Any]) -> pa.RecordBatch:
    named = [{"key": k, "value": v, "headers": [{"key": n, "value": w} for n, w in h]} for k, v, h in records]
    return pa.RecordBatch.from_pylist(named, SCHEMA)


def as_python(conditions: Conditions, key: Any, value: Any, pairs: list[Any]) -> bool:
    """The same by Python, for expressions that both read alike."""

    def has(data: bytes | None, regex: str | None) -> bool:
        return regex is None or (
            data is not None and re.search(regex.encode("utf-8", "surrogateescape"), data) is not None
        )

    wanted = conditions.header, conditions.header_value
    return (
        (conditions.key is None or key == conditions.key)
        and has(key, conditions.key_regex)
        and (conditions.value is None or (value is not None and conditions.value in value))
        and has(value, conditions.value_regex)
        and (wanted[0] is None or any(n == wanted[0] and wanted[1] in (None, w) for n, w in pairs))
    )


@given(
    rows,
    st.builds(
        Conditions,
        key=st.sampled_from([None, None, b"", b"a", b"b\xff"]),
        key_regex=st.sampled_from([None, None, "^a", "[0-9]", "\udcff"]),
        value=st.sampled_from([None, None, b"", b"a", b"\xff"]),
        value_regex=st.sampled_from([None, None, "a$", "^$"]),
        header=st.sampled_from([None, None, "h", ""]),
        header_value=st.sampled_from([None, None, b"", b"a", b"b\xff"]),
    ),
)
def test_the_rows_that_match(records: list[Any], conditions: Conditions) -> None:
    found = conditions.matching(batch_of(records))
    assert found.equals(batch_of([row for row in records if as_python(conditions, *row)]))


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, hashed: int) -> None:
    """The values of `UtilsTest.testMurmur2` in Kafka."""
    assert partition_of(key, 1 << 31, "murmur2") == hashed & 0x7FFFFFFF
    assert partition_of(key, 7, "murmur2") == (hashed & 0x7FFFFFFF) % 7


def test_an_empty_key_has_no_partition_of_librdkafka() -> None:
    """Its default takes an empty key for none. Java's hash takes it for a key."""
    assert partition_of(b"", 7, "consistent") is None
    assert partition_of(b"a", 7, "consistent") == zlib.crc32(b"a") % 7
    assert partition_of(b"", 7, "murmur2") == 275_646_681 % 7


def test_wrong_conditions() -> None:
    with pytest.raises(ConfigError, match="needs a condition"):
        Conditions().check()
    with pytest.raises(ConfigError, match="--value-regex"):
        Conditions(value_regex="(").check()
    with pytest.raises(ConfigError, match="--key-regex"):
        Conditions(key_regex="(\udcff").check()
    with pytest.raises(ConfigError, match="--header: the value is not UTF-8"):
        Conditions(header="\udcff").check()
    Conditions(key=b"").check()


def test_an_expression_may_have_bytes_that_are_not_utf8() -> None:
    conditions = Conditions(key_regex="^b\udcff$")
    conditions.check()
    records: list[Any] = [(b"b\xff", None, []), (b"b", None, []), (b"b\xc3\xbf", None, [])]
    assert conditions.matching(batch_of(records)).equals(batch_of(records[:1]))

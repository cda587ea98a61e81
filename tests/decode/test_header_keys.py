"""Header keys that are no UTF-8, natively and in plain Python: the text that the Java client gives."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from remote_fetch.decode.arrays import java_text
from remote_fetch.formats.batches import BatchHeader
from remote_fetch.testing.records import encode_varint
from tests.cases import each_of
from tests.decoded import ArrowReader
from tests.searches import examples

# What Java 17's `new String(bytes, UTF_8)` gives, U+FFFD written as ?. Surrogates are where Python and Rust differ.
JAVA_STRINGS = [
    (b"plain", "plain"),
    ("größe €".encode(), "größe €"),
    (b"a\x80b", "a?b"),
    (b"\xc0\xaf", "??"),
    (b"\xe2\x82", "?"),
    (b"\xe2\x82A", "?A"),
    (b"\xe0\x80\x80", "???"),
    (b"\xf0\x9f\x98", "?"),
    (b"\xf0\x80\x80\x80", "????"),
    (b"\xf4\x90\x80\x80", "????"),
    (b"\xff\xfe", "??"),
    (b"\xed\xa0\x80", "?"),
    (b"\xed\xbf\xbf!", "?!"),
    (b"\xed\xa0", "?"),
    (b"\xed\xa0A", "?A"),
    (b"\xed\xa0\x80\xed\xb0\x80", "??"),
    (b"\xe2\x82\xed\xa0\x80", "??"),
]


def headers_of(engine: ModuleType, *rows: list[bytes]) -> list[Any]:
    """The column of headers of a batch whose records have these header keys."""
    area = b""
    for delta, keys in enumerate(rows):
        headers = b"".join(encode_varint(len(key)) + key + b"\x02x" for key in keys)
        body = b"\0\0" + encode_varint(delta) + b"\x01\x01" + encode_varint(len(keys)) + headers
        area += encode_varint(len(body)) + body
    head = BatchHeader(0, 0, 4, 2, 0, 0, 1000, 0, 0, -1, -1, -1, len(rows))
    (batch,) = ArrowReader("topic", 0, ("headers",), engine=engine).read(head, memoryview(area), 0, 2000)
    batch.validate(full=True)
    found: list[Any] = batch.column(0).to_pylist()
    return [[(header["key"], header["value"]) for header in headers] for headers in found]


@each_of(("raw", "text"), JAVA_STRINGS)
def test_header_keys_are_repaired_as_java_does(engine: ModuleType, raw: bytes, text: str) -> None:
    wanted = text.replace("?", "\N{REPLACEMENT CHARACTER}")
    assert java_text(raw) == wanted
    assert headers_of(engine, [raw, b"key"], [b"key"]) == [[(wanted, b"x"), ("key", b"x")], [("key", b"x")]]


PIECES = [b"a", b"\x80", b"\xbf", b"\xc3", b"\xe2\x82", b"\xac", b"\xed", b"\xa0", b"\xf0\x9f", "ü€😀".encode()]


@settings(examples(200), suppress_health_check=list(HealthCheck))
@example(rows=[[b"\xc3", b"\xbc"], [b"\xe2\x82"], [b"\xac"]])  # text when put together, and no key of it is text
@given(st.lists(st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join), max_size=4), max_size=4))
def test_each_key_is_repaired_alone(engine: ModuleType, rows: list[list[bytes]]) -> None:
    if rows:
        assert headers_of(engine, *rows) == [[(java_text(key), b"x") for key in keys] for keys in rows]

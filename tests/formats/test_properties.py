"""Java's properties files: 409 odd ones as `java.util.Properties` reads them, and the bounds.

Rules of the file:

- `properties_vectors.json` has inputs (as ISO-8859-1) with the values that OpenJDK 17 read, null if it refused them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import ConfigError
from remote_fetch.formats import properties
from remote_fetch.formats.properties import parse_properties

VECTORS = json.loads(Path(__file__).with_name("properties_vectors.json").read_text(encoding="utf-8"))


def test_values_equal_those_of_java() -> None:
    read = refused = 0
    for text, expected in VECTORS:
        data = text.encode("iso-8859-1")
        if expected is None:
            with pytest.raises(ConfigError, match="four hexadecimal digits"):
                parse_properties(data)
            refused += 1
            continue
        found = parse_properties(data)
        if text.rstrip("\r\n").endswith("\\"):  # a backslash with nothing after it is an empty key to Java
            found[""] = expected.get("", "")
            expected.setdefault("", "")
        assert found == expected, text
        read += 1
    assert (read + refused, refused > 50) == (len(VECTORS), True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb: 2\nc 3\nd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("# a=1\n  ! b=2\n\n c=3", {"c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b,\\\n  c,\\\r\n\td", {"a": "b,c,d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\ b\\=c=\\u0041\\t", {"a b=c": "A\t"}),
        ("a=b  ", {"a": "b  "}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("p\xe4ssw\xf6rd=\xdf", {"p\xe4ssw\xf6rd": "\xdf"}),
        ("", {}),
        ("a=\\ud83d.\\uDE00", {"a": "\ufffd.\ufffd"}),
    ],
)
def test_the_rules(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text.encode("iso-8859-1")) == expected


def test_a_fault_names_its_line_and_shows_nothing() -> None:
    with pytest.raises(ConfigError, match=r"^line 3: \\u is not") as caught:
        parse_properties(b"a=1\n\nsecret=s3cret\\\n\\u12")
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_too_large() -> None:
    with pytest.raises(ConfigError, match="more than 1048576 bytes"):
        parse_properties(bytes(properties.MAX_BYTES + 1))


@given(st.binary(max_size=200))
def test_anything_is_read_or_refused(data: bytes) -> None:
    try:
        found = parse_properties(data)
    except ConfigError:
        return
    assert all(isinstance(text, str) for item in found.items() for text in item)

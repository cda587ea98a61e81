"""kcat's format strings, and times as people read them."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remote_fetch.cli.printer import (
    ROW_COLUMNS,
    Printer,
    UnprintableRow,
    delimiter_bytes,
    format_printer,
    iso_time,
    json_printer,
)
from remote_fetch.cli.unpack import unpackers
from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError
from tests.cases import each_of


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None


ROW = Row("shop", 3, 41, 1_700_000_000_123, 0, (("h", b"1"), ("g", None)), b"key", b"\x80value")
NULLS = Row("shop", 3, 42, -1, -1, (), None, None)


def batch_of(*rows: Row) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[5] = [[{"key": key, "value": value} for key, value in headers] for headers in columns[5]]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema_for(ROW_COLUMNS), strict=True)],
        schema=schema_for(ROW_COLUMNS),
    )


def printed_by(printer: Printer, row: Row) -> bytes:
    """The bytes of a row that stands between others in a batch of a larger one."""
    lines = printer(batch_of(NULLS, ROW, row, ROW).slice(1, 2), None)
    assert (len(lines), lines.null_count, lines.type) == (2, 0, pa.binary())
    found: bytes = lines[1].as_py()
    return found


@each_of(
    ("template", "printed", "of_nulls"),
    [
        ("%s", b"\x80value", b""),
        ("%S", b"6", b"-1"),
        ("%R", b"\0\0\0\x06", b"\xff\xff\xff\xff"),
        ("%k", b"key", b""),
        ("%K", b"3", b"-1"),
        ("%T", b"1700000000123", b"-1"),
        ("%h", b"h=1,g=NULL", b""),
        ("%t", b"shop", b"shop"),
        ("%p", b"3", b"3"),
        ("%o", b"41", b"42"),
        ("%%", b"%", b"%"),
        ("%o%%%o", b"41%41", b"42%42"),
        ("a%ob", b"a41b", b"a42b"),
        ("", b"", b""),
        (r"\n\r\t\0\\", b"\n\r\t\0\\", b"\n\r\t\0\\"),
        (r"\x41\xfF", b"A\xff", b"A\xff"),
        (r"\x4", b"x4", b"x4"),
        (r"\x", b"x", b"x"),
        (r"\q", b"q", b"q"),
        ("\\ü", "ü".encode(), "ü".encode()),
        ("ü\n", "ü\n".encode(), "ü\n".encode()),
        ("\udcff", b"\xff", b"\xff"),
        ("%", b"%", b"%"),
        ("\\", b"\\", b"\\"),
    ],
)
def test_format(template: str, printed: bytes, of_nulls: bytes) -> None:
    printer = format_printer(template)
    assert printed_by(printer, ROW) == printed
    assert printed_by(printer, NULLS) == of_nulls


def test_null_is_printed_for_null_and_empty_where_it_is_asked_for() -> None:
    printer = format_printer("%k|%s|%S|%h", shows_null=True)
    assert printed_by(printer, NULLS) == b"NULL|NULL|-1|"
    assert printed_by(printer, NULLS._replace(key=b"", value=b"")) == b"NULL|NULL|0|"
    assert printed_by(printer, ROW) == b"key|\x80value|6|h=1,g=NULL"


def test_numbers_are_unpacked_from_bytes_alone() -> None:
    unpack = unpackers(["key=s", "value=B s"])
    printer = format_printer("%k|%s", shows_null=True, unpack=unpack)
    assert printed_by(printer, ROW) == b"key|128 value"
    assert printed_by(printer, NULLS) == b"NULL|NULL"
    too_long = format_printer("%s", unpack=unpackers(["hbbbh"]))
    with pytest.raises(UnprintableRow) as caught:
        too_long(batch_of(NULLS, NULLS, ROW, ROW), None)
    assert caught.value.at == 2
    assert str(caught.value.error) == ("-s: the value ends early: h takes 2 bytes, 1 are left [shop-3, offset 41]")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"%z is no field; there are %s %S %R %k %K %T %h %t %p %o %%"):
        format_printer("%s %z")


def test_json() -> None:
    """The JSON has no spaces. Fields that a record lacks are left out, except key and payload."""
    plain = ROW._replace(headers=(), value="é".encode())
    assert (
        printed_by(json_printer("text", b";"), plain).decode()
        == '{"topic":"shop","partition":3,"offset":41,"tstype":"create","ts":1700000000123,"broker":-1,"key":"key",'
        '"payload":"é"};'
    )
    assert printed_by(json_printer("base64"), NULLS) == (
        b'{"topic":"shop","partition":3,"offset":42,"broker":-1,"key":null,"payload":null}\n'
    )


def test_json_escapes_as_kcat_does() -> None:
    text = "".join(map(chr, range(32))) + r'\u001f \\ "/' + "\x7f\N{LINE SEPARATOR}"
    printed = printed_by(json_printer("text"), ROW._replace(value=text.encode())).decode()
    assert json.loads(printed)["payload"] == text
    assert r"\u000B\f\r\u000E\u000F" in printed
    assert r"\u001E\u001F\\u001f \\\\ \"/" + "\x7f\N{LINE SEPARATOR}" in printed


def test_json_of_a_column_that_would_outgrow_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's function ends the process if more than 2 GiB come out. Then each value is escaped alone."""
    batch = batch_of(ROW._replace(key=None, value=b'\0"'), ROW._replace(key=b"\\", value=b"a"))
    expected = json_printer("text")(batch, None)
    monkeypatch.setattr("remote_fetch.cli.printer._MOST_ESCAPED_BYTES", 1)
    assert json_printer("text")(batch, None).equals(expected)


TEXTS = st.text(st.sampled_from('aé\N{SNOWMAN}\N{PILE OF POO}\\"/\x00\x01\n\t\x1f\x7fu0'), max_size=8).map(str.encode)


@given(
    st.lists(st.one_of(st.none(), TEXTS), min_size=1, max_size=5),
    st.one_of(TEXTS, st.binary(max_size=4)),
    st.booleans(),
)
@example([b"a"], b"\n", False)
def test_json_of_many_values_is_that_of_each(values: list[bytes | None], other: bytes, is_beside: bool) -> None:
    """A value beside those that are printed, or a value that is no UTF-8, changes no other."""
    shown = values if is_beside else [*values, other]
    batch = batch_of(*(ROW._replace(key=each, value=each) for each in [other, *values, other]))
    lines = json_printer("text")(batch.slice(1, len(shown)), None).to_pylist()
    for line, value in zip(lines, shown, strict=True):
        text = None if value is None else value.decode("utf-8", "replace")
        own = re.sub(
            r"(\\\\)|(\\u00..)",
            lambda found: found[1] or rf"\u{found[2][2:].upper()}",
            json.dumps(text, ensure_ascii=False),
        )
        assert line is not None
        assert line.decode().endswith(f'"key":{own},"payload":{own}}}\n')


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [("", b""), (r"\n", b"\n"), (r"\x1e", b"\x1e"), ("%o%", b"%o%"), (r"\t;\\", b"\t;\\"), ("\udcff", b"\xff")],
)
def test_a_delimiter_has_escapes_and_no_fields(text: str, delimiter: bytes) -> None:
    assert delimiter_bytes(text) == delimiter


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (-1, "-"),
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_iso_time(timestamp_ms: int, shown: str) -> None:
    assert iso_time(timestamp_ms) == shown

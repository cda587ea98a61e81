"""Messages out of record batches, natively and in plain Python, against messages made of the records one by one.

Rules of the file: every test runs with each engine. Without the native one these tests are skipped, unless the machine
has a Rust compiler: then the build has failed, and so does the test.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import sys
import tracemalloc
import weakref
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode import message_reference
from remote_fetch.decode.columns import COLUMNS, schema_for
from remote_fetch.decode.message_reference import Cells
from remote_fetch.decode.messages import MESSAGE_COLUMNS, MessageCursor
from remote_fetch.decode.run_decoder import BatchReader
from remote_fetch.errors import ConfigError
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, read_header
from remote_fetch.testing.records import Record, encode_batch
from tests.cases import each_of
from tests.searches import examples

EVERYTHING = 2**63 - 1
BASE_MS = 1_700_000_000_000
SCHEMA = schema_for(MESSAGE_COLUMNS)

Arguments = tuple[Any, ...]
"""The arguments of the class of the messages."""


@pytest.fixture(params=["plain", "native"], scope="session")
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """Each inner loop in turn."""
    native: ModuleType = request.getfixturevalue("native_engine") if request.param == "native" else message_reference
    return native


def batch_of(*records: Record, columns: tuple[str, ...] = MESSAGE_COLUMNS, **options: Any) -> pa.RecordBatch:
    """One record batch of one Kafka batch."""
    options = {"base_timestamp_ms": BASE_MS, "leader_epoch": 3} | options
    data = memoryview(encode_batch(100, records, **options))
    head = read_header(data, 0, position=0)
    assert isinstance(head, BatchHeader)
    return built(BatchReader("t", 0, columns), head, data)


def built(reader: BatchReader, head: BatchHeader, data: memoryview) -> pa.RecordBatch:
    """The only record batch that comes of it."""
    (only,) = reader.read(head, data[HEADER_BYTES:], 0, EVERYTHING)
    return only


def batch_from(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """A record batch of rows with what is not said left as in `USUAL`, made by pyarrow."""
    return pa.RecordBatch.from_pylist([USUAL | row for row in rows], schema=SCHEMA)


USUAL: dict[str, Any] = {
    "key": b"k",
    "value": b"v",
    "offset": 0,
    "timestampMs": 1_000,
    "timestampType": 0,
    "headers": [],
    "leaderEpoch": 0,
}


def recorded(*arguments: Any) -> Arguments:
    """Stands for the class of the messages."""
    return arguments


def expected(record: Record, leader_epoch: int = 3) -> Arguments:
    """The fields that librdkafka's binding would give for a record of `batch_of`."""
    headers = [(name.partition("\0")[0], value) for name, value in record.headers]
    stamp = (1, BASE_MS + record.timestamp_delta_ms)
    offset = 100 + record.offset_delta
    return ("t", 0, offset, record.key, record.value, headers or None, None, stamp, -1.0, leader_epoch)


def fields(message: Message) -> Arguments:
    """All that a message says."""
    return (
        type(message),
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.error(),
        message.timestamp(),
        message.latency(),
        message.leader_epoch(),
        len(message),
    )


SOME = (
    Record(0, 0, None, None),
    Record(1, 5, b"", b""),
    Record(2, 5, b"key", b"value" * 100, (("a", b"1"),)),
    Record(4, -7, b"key", None, (("null", None), ("null", b""), ("", b"\0"))),
    Record(9, 2**31, None, b"v", (("schlüssel-ключ", b"x"), ("cut\0here", b"y"), ("\0", None))),
)


def test_the_arguments_of_the_class(engine: ModuleType) -> None:
    cursor = MessageCursor(batch_of(*SOME), "t", 0, recorded, engine=engine)
    assert cursor.take(len(SOME)) == [expected(record) for record in SOME]


def test_messages_are_those_of_the_client(engine: ModuleType) -> None:
    messages = MessageCursor(batch_of(*SOME), "t", 0, Message, engine=engine).take(len(SOME))
    by_hand = [Message(*expected(record)) for record in SOME]
    assert [fields(one) for one in messages] == [fields(one) for one in by_hand]
    assert messages == by_hand
    assert [one.__reduce__() for one in messages] == [one.__reduce__() for one in by_hand]
    assert pickle.loads(pickle.dumps(messages)) == by_hand
    assert messages[0].headers() is None
    assert messages[0].latency() is None
    assert [messages[0].key(), messages[1].key(), len(messages[0])] == [None, b"", 0]


def test_kinds_of_timestamps(engine: ModuleType) -> None:
    by_the_broker = batch_of(Record(0, 1), Record(1, 2), log_append_time_ms=77)
    made = MessageCursor(by_the_broker, "t", 0, Message, engine=engine).take(2)
    assert [one.timestamp() for one in made] == [(2, 77), (2, 77)]
    kinds = [(0, -1), (0, -1), (0, 0), (1, 0), (-1, -1), (0, -5), (0, 2**53), (-1, 4)]
    rows = batch_from([{"timestampType": kind, "timestampMs": ms} for kind, ms in kinds])
    made = MessageCursor(rows, "t", 0, Message, engine=engine).take(len(kinds))
    # librdkafka leaves the time of a message without one at zero.
    wanted = [(1, -1), (1, -1), (1, 0), (2, 0), (0, 0), (1, -5), (1, 2**53), (0, 0)]
    assert [one.timestamp() for one in made] == wanted


def test_no_leader_epoch(engine: ModuleType) -> None:
    rows = batch_from([{"leaderEpoch": epoch} for epoch in (-1, 0, 2**31 - 1)])
    made = MessageCursor(rows, "t", 0, Message, engine=engine).take(3)
    assert [one.leader_epoch() for one in made] == [None, 0, 2**31 - 1]


def test_as_many_headers_as_librdkafka_takes(engine: ModuleType) -> None:
    rows = batch_from([{"headers": [("h", b"")] * count} for count in (1, 100_000, 100_001)])
    made = MessageCursor(rows, "t", 0, recorded, engine=engine).take(3)
    assert [None if one[5] is None else len(one[5]) for one in made] == [1, 100_000, None]


def test_a_header_key_that_is_no_utf8(engine: ModuleType) -> None:
    data = bytearray(encode_batch(0, [Record(0, headers=(("ab", b"x"),))]))
    data[data.index(b"ab")] = 0xFF
    head = read_header(memoryview(data), 0, position=0)
    assert isinstance(head, BatchHeader)
    rows = built(BatchReader("t", 0, MESSAGE_COLUMNS), head, memoryview(data))
    (made,) = MessageCursor(rows, "t", 0, Message, engine=engine).take(1)
    assert made.headers() == [("\N{REPLACEMENT CHARACTER}b", b"x")]


def test_how_a_cursor_moves(engine: ModuleType) -> None:
    """The cursor moves over records with the offsets 100, 101, 102, 104 and 109."""
    cursor = MessageCursor(batch_of(*SOME), "t", 0, Message, engine=engine)
    assert (len(cursor), cursor.next_offset) == (5, 100)
    assert cursor.take(0) == cursor.take(-1) == []
    assert [one.offset() for one in cursor.take(1)] == [100]
    cursor.skip_before(50)
    assert (len(cursor), cursor.next_offset) == (4, 101)
    cursor.skip_before(103)
    assert (len(cursor), cursor.next_offset) == (2, 104)
    cursor.skip_before(104)
    assert [one.offset() for one in cursor.take(10)] == [104, 109]
    assert (len(cursor), cursor.next_offset) == (0, None)
    cursor.skip_before(0)
    assert cursor.take(10) == []
    cursor = MessageCursor(batch_of(*SOME), "t", 0, Message, engine=engine)
    cursor.skip_before(110)
    assert (len(cursor), cursor.next_offset, cursor.take(1)) == (0, None, [])


def test_no_rows(engine: ModuleType) -> None:
    nothing: list[Any] = [pa.array([], field.type) for field in SCHEMA]
    for rows in (
        batch_of(*SOME).slice(5),
        batch_from([]),
        pa.RecordBatch.from_arrays(nothing, schema=SCHEMA),
    ):
        cursor = MessageCursor(rows, "t", 0, Message, engine=engine)
        assert (len(cursor), cursor.next_offset, cursor.take(3)) == (0, None, [])


def test_columns_in_any_order_beside_others(engine: ModuleType) -> None:
    for order in (COLUMNS, tuple(reversed(COLUMNS)), MESSAGE_COLUMNS[3:] + MESSAGE_COLUMNS[:3]):
        rows = batch_of(*SOME, columns=order)
        made = MessageCursor(rows, "t", 0, recorded, engine=engine).take(5)
        assert made == [expected(record) for record in SOME]


@pytest.mark.parametrize("missing", MESSAGE_COLUMNS)
def test_a_column_that_is_missing(missing: str) -> None:
    rows = batch_of(*SOME)
    with pytest.raises(ConfigError, match=f"needs the column '{missing}'"):
        MessageCursor(rows.drop_columns([missing]), "t", 0, Message)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        pytest.param("value", pa.array([b"v"], pa.large_binary()), id="offsets of 64 bits"),
        pytest.param("key", pa.array(["k"], pa.string()), id="text"),
        pytest.param("timestampMs", pa.array([1], pa.timestamp("ms", "UTC")), id="a time"),
        pytest.param("offset", pa.array([1], pa.int32()), id="too narrow"),
        pytest.param("headers", pa.array([[("k", b"v")]], pa.map_(pa.string(), pa.binary())), id="a map"),
        pytest.param("offset", pa.array([None], pa.int64()), id="a null"),
        pytest.param("headers", pa.array([None], SCHEMA.field("headers").type), id="null headers"),
        pytest.param("headers", pa.array([[None]], SCHEMA.field("headers").type), id="a null header"),
        pytest.param("headers", pa.array([[(None, b"v")]], SCHEMA.field("headers").type), id="a null header key"),
    ],
)
def test_a_column_that_cannot_be_read(name: str, column: Any) -> None:
    rows = batch_from([{}])
    broken = rows.set_column(rows.schema.get_field_index(name), name, column)
    with pytest.raises(ConfigError, match=f"the column '{name}'"):
        MessageCursor(broken, "t", 0, Message)


names = st.text(max_size=5) | st.just("cut\0here")
values = st.none() | st.binary(max_size=12)
rows_of = st.lists(
    st.fixed_dictionaries(
        {
            "key": values,
            "value": values,
            "timestampMs": st.integers(-(2**63), 2**63 - 1),
            "timestampType": st.sampled_from([0, 1]),
            "headers": st.lists(st.tuples(names, values), max_size=3),
            "leaderEpoch": st.sampled_from([0, 1]),
        }
    ),
    max_size=40,
)


@given(rows=rows_of, data=st.data())
@examples(100)
def test_any_rows_in_any_slice_in_any_steps(engine: ModuleType, rows: list[dict[str, Any]], data: Any) -> None:
    """Also out of the middle of larger buffers, where no column begins at a whole byte of its validity bits."""
    numbered = [USUAL | row | {"offset": number} for number, row in enumerate(rows)]
    whole = pa.RecordBatch.from_pylist(numbered, schema=SCHEMA)
    first = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(first, len(rows)))
    cursor = MessageCursor(whole.slice(first, stop - first), "t", 7, recorded, engine=engine)
    made: list[Any] = []
    while len(cursor):
        made += cursor.take(data.draw(st.integers(1, 10)))
    assert made == [
        (
            "t",
            7,
            number,
            rows[number]["key"],
            rows[number]["value"],
            [(name.partition("\0")[0], value) for name, value in rows[number]["headers"]] or None,
            None,
            (rows[number]["timestampType"] + 1, rows[number]["timestampMs"]),
            -1.0,
            rows[number]["leaderEpoch"],
        )
        for number in range(first, stop)
    ]


def test_slices_below_the_columns(engine: ModuleType) -> None:
    """A list array whose items, keys and values are each a part of something larger."""
    names, values = pa.array(["-", "-", "a", None, "b"])[2:], pa.array([b"-", b"1", None, b"2"], pa.binary())[1:]
    items = pa.StructArray.from_arrays([names, values], fields=list(SCHEMA.field("headers").type.value_type))
    kept = items.take(pa.array([0, 0, 0, 2])).slice(1)
    lists: Any = pa.ListArray.from_arrays(pa.array([0, 0, 1, 3], pa.int32()), kept, type=SCHEMA.field("headers").type)
    rows = batch_from([{}, {}])
    rows = rows.set_column(SCHEMA.get_field_index("headers"), SCHEMA.field("headers"), lists.slice(1))
    made = MessageCursor(rows, "t", 0, recorded, engine=engine).take(2)
    assert [one[5] for one in made] == [[("a", b"1")], [("a", b"1"), ("b", b"2")]]


def test_who_keeps_the_arguments_has_them_for_good(engine: ModuleType) -> None:
    """An exception keeps the very tuple that it was called with."""
    made = MessageCursor(batch_of(*SOME), "t", 0, Exception, engine=engine).take(5)
    assert [one.args for one in made] == [expected(record) for record in SOME]


def test_a_class_that_raises_gives_out_nothing(engine: ModuleType) -> None:
    calls = itertools.count()

    def fails_once(*arguments: Any) -> Arguments:
        if next(calls) == 2:
            raise OSError("the third")
        return arguments

    cursor = MessageCursor(batch_of(*SOME), "t", 0, fails_once, engine=engine)
    with pytest.raises(OSError, match="the third"):
        cursor.take(4)
    assert (len(cursor), cursor.next_offset) == (5, 100)
    assert cursor.take(5) == [expected(record) for record in SOME]


def test_messages_outlive_their_batch_and_nothing_outlives_them(engine: ModuleType) -> None:
    topic = "".join(["to", "pic"])
    size_bytes = 1 << 20
    held = sys.getrefcount(topic)
    tracemalloc.start()
    try:
        for number in range(8):
            large = [Record(delta, key=b"k" * size_bytes, value=b"%d" % number * size_bytes) for delta in range(2)]
            cursor = MessageCursor(batch_of(*large), topic, 0, Message, engine=engine)
            made = cursor.take(2)
            del cursor, large
            assert made[1].value() == b"%d" % number * size_bytes
            del made
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left_bytes < size_bytes
    assert sys.getrefcount(topic) == held


KEYS = ("a", "", "cut\0here", "long" * 9, "schlüssel")
headers_of = st.lists(st.tuples(st.sampled_from(KEYS) | names, values), max_size=20)


@given(rows=rows_of, lists=st.lists(headers_of, min_size=40, max_size=40), data=st.data())
@examples(100)
def test_both_engines_make_the_same(
    native_engine: ModuleType, rows: list[dict[str, Any]], lists: list[Any], data: Any
) -> None:
    """Keys of headers that repeat from row to row, and change at one position; magic 0 among the others."""
    kinds = data.draw(st.lists(st.sampled_from([-1, 0, 0, 1, 2**31 - 1]), min_size=len(rows), max_size=len(rows)))
    numbered = [
        USUAL | row | {"offset": number, "headers": lists[number], "timestampType": kinds[number]}
        for number, row in enumerate(rows)
    ]
    whole = pa.RecordBatch.from_pylist(numbered, schema=SCHEMA).slice(data.draw(st.integers(0, 3)))
    steps = [*data.draw(st.lists(st.integers(1, 10), max_size=10)), len(rows)]

    def messages(engine: ModuleType) -> list[Any]:
        cursor = MessageCursor(whole, "t", 7, recorded, engine=engine)
        return [one for step in steps for one in cursor.take(step)]

    plain, fast = messages(message_reference), messages(native_engine)
    assert plain == fast
    assert [list(map(type, one)) for one in plain] == [list(map(type, one)) for one in fast]


def numbers(item_format: Literal["i", "q"], *items: int) -> memoryview:
    return memoryview(array(item_format, items).tobytes()).cast(item_format)


def cells(*ends: int, data: bytes = b"abcd", validity: bytes | None = None, first_bit: int = 0) -> Cells:
    return Cells(numbers("i", *ends), memoryview(data), None if validity is None else memoryview(validity), first_bit)


def rows_from(engine: ModuleType, make: Callable[..., Any] = recorded, **columns: Any) -> Any:
    """Two rows, the second with a header, with some columns replaced."""
    sound: dict[str, Any] = {
        "key": cells(0, 1, 2),
        "value": cells(1, 1, 4),
        "offset": numbers("q", 5, 6),
        "timestamp_ms": numbers("q", 7, 8),
        "timestamp_type": numbers("i", 0, 1),
        "leader_epoch": numbers("i", 3, 3),
        "header_ends": numbers("i", 0, 0, 1),
        "header_key": cells(0, 1),
        "header_value": cells(1, 2),
    }
    return engine.Rows(make, "t", 9, **(sound | columns))


TWO_ROWS = [
    ("t", 9, 5, b"a", b"", None, None, (1, 7), -1.0, 3),
    ("t", 9, 6, b"b", b"bcd", [("a", b"b")], None, (2, 8), -1.0, 3),
]


def test_columns_by_hand(engine: ModuleType) -> None:
    assert rows_from(engine).messages(0, 2) == TWO_ROWS
    assert rows_from(engine).messages(1, 2) == TWO_ROWS[1:]
    for nothing in ((0, 0), (2, 1), (-3, -3), (0, -1), (2**63 - 1, -(2**63))):
        assert rows_from(engine).messages(*nothing) == []


@each_of("start, stop", [(0, 3), (-1, 1), (-1, 0), (2, 3), (0, 2**63 - 1), (-(2**63), 2**63 - 1)])
def test_rows_outside_the_columns(engine: ModuleType, start: int, stop: int) -> None:
    with pytest.raises(IndexError, match=r"^a row outside its columns$"):
        rows_from(engine).messages(start, stop)


@each_of(
    "column, short",
    [
        ("key", cells(0, 1)),
        ("value", cells()),
        ("offset", numbers("q", 1)),
        ("timestamp_ms", numbers("q")),
        ("timestamp_type", numbers("i", 1)),
        ("leader_epoch", numbers("i", 1)),
        ("header_ends", numbers("i", 0, 0)),
    ],
)
def test_a_column_that_is_too_short(engine: ModuleType, column: str, short: Any) -> None:
    with pytest.raises(IndexError, match=r"^a row outside its columns$"):
        rows_from(engine, **{column: short}).messages(0, 2)


@each_of(
    "columns",
    [
        pytest.param({"key": cells(0, 1, 5)}, id="past the end"),
        pytest.param({"value": cells(0, 1, 2**31 - 1)}, id="far past the end"),
        pytest.param({"key": cells(0, 2, 1)}, id="falling"),
        pytest.param({"key": cells(-1, 1, 2)}, id="before the beginning"),
        pytest.param({"value": cells(-(2**31), 1, 2)}, id="far before the beginning"),
        pytest.param({"value": cells(0, -2, -1)}, id="from the end"),
        pytest.param({"key": cells(0, 1, 1, data=b"")}, id="no data"),
        pytest.param({"key": cells(0, 1, 2, validity=b"")}, id="no validity"),
        pytest.param({"key": cells(0, 1, 2, validity=b"\xff", first_bit=7)}, id="validity too short"),
        pytest.param({"key": cells(0, 1, 2, validity=b"\xff", first_bit=-1)}, id="a bit before the beginning"),
        pytest.param({"key": cells(0, 1, 2, validity=b"\xff", first_bit=2**63 - 1)}, id="a bit far away"),
        pytest.param({"key": cells(0, 1, 2, validity=b"\xff", first_bit=-(2**63))}, id="a bit far before"),
        pytest.param({"header_ends": numbers("i", 0, 0, 2)}, id="headers past the end"),
        pytest.param({"header_ends": numbers("i", 0, 0, 2**31 - 1)}, id="too many headers, past the end"),
        pytest.param({"header_ends": numbers("i", 2, 2, 2)}, id="no headers, past the end"),
        pytest.param({"header_ends": numbers("i", 0, 1, 0)}, id="headers falling"),
        pytest.param({"header_ends": numbers("i", -1, 0, 1)}, id="headers before the beginning"),
        pytest.param({"header_key": cells()}, id="no header keys"),
        pytest.param({"header_key": cells(0, 5)}, id="header key past the end"),
        pytest.param({"header_key": cells(3, 2)}, id="header key falling"),
        pytest.param({"header_value": cells(0)}, id="no header values"),
        pytest.param({"header_value": cells(0, 5)}, id="header value past the end"),
        pytest.param({"header_value": cells(0, 1, validity=b"")}, id="no validity of a header value"),
    ],
)
def test_an_offset_that_leaves_its_column(engine: ModuleType, columns: dict[str, Any]) -> None:
    with pytest.raises(IndexError, match=r"^an offset outside its column$"):
        rows_from(engine, **columns).messages(0, 2)


def test_the_error_of_two_faults_in_a_row(engine: ModuleType) -> None:
    """A header key that is not UTF-8, and a key that leaves its column."""
    with pytest.raises(UnicodeDecodeError):
        rows_from(engine, key=cells(0, 1, 9), header_key=cells(0, 1, data=b"\xff")).messages(0, 2)


ints = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 6)


@given(data=st.data())
@examples(100)
def test_hostile_columns_end_alike(native_engine: ModuleType, data: Any) -> None:
    """Both engines give the same messages, or the same error."""

    def some_cells() -> Cells:
        ends = data.draw(st.lists(ints, max_size=4) | st.lists(st.integers(0, 4), min_size=3, max_size=4).map(sorted))
        validity = data.draw(st.none() | st.binary(max_size=1))
        first_bit = data.draw(st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63)]))
        return cells(*ends, data=data.draw(st.binary(max_size=5)), validity=validity, first_bit=first_bit)

    names = ("key", "value", "header_key", "header_value")
    columns: dict[str, Any] = {name: some_cells() for name in names if data.draw(st.booleans())}
    columns["header_ends"] = numbers("i", *data.draw(st.just([0, 0, 1]) | st.lists(ints, max_size=4)))
    start, stop = data.draw(st.just((0, 2)) | st.tuples(ints, ints))

    def outcome(engine: ModuleType) -> Any:
        try:
            return rows_from(engine, **columns).messages(start, min(stop, 10))
        except (IndexError, UnicodeDecodeError) as error:
            return type(error), str(error)

    assert outcome(native_engine) == outcome(message_reference)


def test_memory_that_cannot_be_read(native_engine: ModuleType) -> None:
    unaligned = memoryview(bytes(9))[1:].cast("i")
    for column in (numbers("q", 1, 2, 3)[::2], memoryview(array("q", [1, 2])), numbers("i", 1, 2), b"12345678"):
        with pytest.raises(BufferError):
            rows_from(native_engine, offset=column)
    with pytest.raises(BufferError):
        rows_from(native_engine, timestamp_type=unaligned)
    with pytest.raises(BufferError):
        rows_from(native_engine, key=Cells(numbers("i", 0, 0, 0), memoryview(bytearray(b"abc"))))
    for wrong in (None, (), cells(0, 1, 2)[:3]):
        with pytest.raises((TypeError, ValueError)):
            rows_from(native_engine, key=wrong)


def test_no_headers_and_empty_columns_of_headers(engine: ModuleType) -> None:
    none: dict[str, Any] = {"header_ends": numbers("i", 0, 0, 0), "header_key": cells(0), "header_value": cells()}
    assert [one[5] for one in rows_from(engine, **none).messages(0, 2)] == [None, None]
    # One row with headers between rows without.
    lists: list[list[tuple[str, bytes | None]]] = [[], [("a", None)], [], [("a", b""), ("b", b"")], [("a", b"1")], []]
    rows = batch_from([{"headers": headers} for headers in lists])
    made = MessageCursor(rows, "t", 0, recorded, engine=engine).take(6)
    assert [one[5] for one in made] == [headers or None for headers in lists]
    made = MessageCursor(rows.slice(2, 3), "t", 0, recorded, engine=engine).take(6)
    assert [one[5] for one in made] == [headers or None for headers in lists[2:5]]


def test_the_tuple_is_used_again_unless_it_is_kept(native_engine: ModuleType) -> None:
    """Only a callee in C sees the tuple itself: `Exception` keeps it, and a slice of it is a copy."""
    kept: list[Any] = rows_from(native_engine, Exception).messages(0, 2)
    assert [one.args for one in kept] == TWO_ROWS
    owners = sys.getrefcount(kept[0].args)
    assert owners == 2  # the exception, and the call that asks
    turns = itertools.cycle([True, False])

    class Sometimes(Exception):
        """Keeps every second tuple."""

        def __init__(self, *arguments: Any) -> None:
            if not next(turns):
                self.args = ()

    rows = [{"offset": number, "headers": [("h", b"")] * (number % 3)} for number in range(20)]
    made = MessageCursor(batch_from(rows), "t", 0, Sometimes, engine=native_engine).take(20)
    assert [one.args[2] for one in made[::2]] == list(range(0, 20, 2))
    assert [len(one.args[5] or ()) for one in made[::2]] == [number % 3 for number in range(0, 20, 2)]
    assert {one.args for one in made[1::2]} == {()}


def test_who_finds_the_tuple_while_its_headers_are_dropped(engine: ModuleType) -> None:
    """The callee puts an object into the list of headers that looks for the tuple when it is dropped."""
    found: list[Any] = []

    class Last:
        def __del__(self) -> None:
            found.extend(
                one for one in gc.get_objects() if type(one) is tuple and len(one) == 10 and one[:2] == ("t", 0)
            )

    def make(*arguments: Any) -> int:
        if arguments[5]:
            arguments[5].append(Last())
        return int(arguments[2])

    rows = batch_from([{"offset": number, "headers": [("h", b"")] * (number % 2)} for number in range(6)])
    assert MessageCursor(rows, "t", 0, make, engine=engine).take(6) == list(range(6))
    assert all(None not in (one[2], one[7]) for one in found)


@each_of("raised", [OSError("in the middle"), KeyboardInterrupt()])
def test_a_callee_that_raises_leaks_nothing(engine: ModuleType, raised: BaseException) -> None:
    topic, partition = "".join(["to", "pic"]), 10**20
    left: list[weakref.ref[Any]] = []

    class Made:
        def __init__(self, *arguments: Any) -> None:
            if len(left) % 5 == 4:
                raise raised
            left.append(weakref.ref(self))

    class Raising(Made):
        """To have reference counts of its own."""

    rows = batch_from([{"value": b"v" * 10_000, "headers": [("h", b"1")]}] * 8)

    def once() -> None:
        with pytest.raises(type(raised)):
            MessageCursor(rows, topic, partition, Raising, engine=engine).take(8)
        assert [one() for one in left] == [None] * 4
        left.clear()
        raised.__traceback__ = raised.__context__ = None

    once()
    gc.collect()
    before = [sys.getrefcount(one) for one in (topic, partition, Raising, raised)]
    tracemalloc.start()
    try:
        for _ in range(50):
            once()
        gc.collect()
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [sys.getrefcount(one) for one in (topic, partition, Raising, raised)] == before
    assert left_bytes < 100_000  # of the 20 MB of values


def test_offsets_that_leave_the_data_leak_nothing(engine: ModuleType) -> None:
    topic = "".join(["to", "pic"])
    rows = rows_from(engine, key=cells(0, 1, 9))
    once = sys.getrefcount(topic)
    for _ in range(100):
        with pytest.raises(IndexError):
            rows.messages(0, 2)
    del rows
    assert sys.getrefcount(topic) == once


def test_a_cycle_through_the_callee_is_collected(engine: ModuleType) -> None:
    class Callee:
        def __call__(self, *arguments: Any) -> Any:
            return arguments

    callee: Any = Callee()
    callee.rows = rows_from(engine, callee)
    gone = weakref.ref(callee)
    del callee
    gc.collect()
    assert gone() is None


def test_what_messages_share_is_counted_right(engine: ModuleType) -> None:
    """None is in all messages: one reference too many or too few in each of 100,000 would show."""
    rows = batch_from([{"key": None, "headers": [("h", None)] * (number % 2)} for number in range(1000)])

    def once() -> None:
        assert len(MessageCursor(rows, "t", 0, recorded, engine=engine).take(1000)) == 1000

    once()
    before = sys.getrefcount(None)
    for _ in range(100):
        once()
    assert abs(sys.getrefcount(None) - before) < 1000


def test_the_pair_of_a_timestamp_is_shared_until_it_changes(native_engine: ModuleType) -> None:
    rows = batch_from([{"timestampMs": 7}, {"timestampMs": 7}, {"timestampMs": 8}, {"timestampMs": 7}])
    pairs = [one[7] for one in MessageCursor(rows, "t", 0, recorded, engine=native_engine).take(4)]
    assert pairs == [(1, 7), (1, 7), (1, 8), (1, 7)]
    assert pairs[0] is pairs[1]
    owners = [sys.getrefcount(pair) for pair in pairs]
    # The list, and in some versions of Python the loop and the call that asks. The first two are one pair.
    assert [count - owners[-1] for count in owners] == [1, 1, 0, 0]


def test_a_callee_that_calls_again(engine: ModuleType) -> None:
    """A call inside of a call makes the same messages, and so does the outer one."""
    inner: list[Any] = []

    def make(*arguments: Any) -> Arguments:
        if arguments[2] == 102 and not inner:
            inner.append(None)
            inner[:] = rows.messages(0, 5)
        return arguments

    cursor = MessageCursor(batch_of(*SOME), "t", 0, make, engine=engine)
    rows = cursor._rows
    assert cursor.take(5) == inner == [expected(record) for record in SOME]
    assert rows.messages(1, 2) == [expected(SOME[1])]


def test_nothing_of_a_row_stays_after_a_call(native_engine: ModuleType) -> None:
    """The rows keep the tuple for the next call. It would keep the last key, value and headers."""
    rows = batch_from([{"key": b"key" * 9, "value": b"value" * 9, "headers": [("h", b"1")]}] * 3)
    cursor = MessageCursor(rows, "t", 0, recorded, engine=native_engine)
    for _ in range(3):
        (made,) = cursor.take(1)
        assert [sys.getrefcount(made[index]) for index in (3, 4, 5)] == [2, 2, 2]


def test_a_cycle_through_the_headers_is_collected(engine: ModuleType) -> None:
    class Last:
        rows: Any

    def cycle() -> weakref.ref[Last]:
        last = Last()

        def make(*arguments: Any) -> int:
            arguments[5].append(last)
            return 1

        last.rows = MessageCursor(batch_from([{"headers": [("h", b"1")]}]), "t", 0, make, engine=engine)
        assert last.rows.take(1) == [1]
        return weakref.ref(last)

    gone = cycle()
    gc.collect()
    assert gone() is None

"""Messages out of record batches, compiled and interpreted, against messages made of the records one by one."""

from __future__ import annotations

import importlib.util
import itertools
import pickle
import sys
import tracemalloc
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

import remote_fetch.decode
from remote_fetch.decode import _shadow
from remote_fetch.decode.columns import COLUMNS, schema_for
from remote_fetch.decode.messages import MESSAGE_COLUMNS, MessageCursor
from remote_fetch.decode.run_decoder import BatchReader
from remote_fetch.errors import ConfigError
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, read_header
from remote_fetch.testing.records import Record, encode_batch

EVERYTHING = 2**63 - 1
BASE_MS = 1_700_000_000_000
SCHEMA = schema_for(MESSAGE_COLUMNS)

Arguments = tuple[Any, ...]
"""The arguments of the class of the messages."""


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


def test_the_arguments_of_the_class(message_kernel: ModuleType) -> None:
    cursor = MessageCursor(batch_of(*SOME), "t", 0, recorded, kernel=message_kernel)
    assert cursor.take(len(SOME)) == [expected(record) for record in SOME]


def test_messages_are_those_of_the_client(message_kernel: ModuleType) -> None:
    messages = MessageCursor(batch_of(*SOME), "t", 0, Message, kernel=message_kernel).take(len(SOME))
    by_hand = [Message(*expected(record)) for record in SOME]
    assert [fields(one) for one in messages] == [fields(one) for one in by_hand]
    assert messages == by_hand
    assert [one.__reduce__() for one in messages] == [one.__reduce__() for one in by_hand]
    assert pickle.loads(pickle.dumps(messages)) == by_hand
    assert messages[0].headers() is None
    assert messages[0].latency() is None
    assert [messages[0].key(), messages[1].key(), len(messages[0])] == [None, b"", 0]


def test_kinds_of_timestamps(message_kernel: ModuleType) -> None:
    by_the_broker = batch_of(Record(0, 1), Record(1, 2), log_append_time_ms=77)
    made = MessageCursor(by_the_broker, "t", 0, Message, kernel=message_kernel).take(2)
    assert [one.timestamp() for one in made] == [(2, 77), (2, 77)]
    kinds = [(0, -1), (0, -1), (0, 0), (1, 0), (-1, -1), (0, -5), (0, 2**53), (-1, 4)]
    rows = batch_from([{"timestampType": kind, "timestampMs": ms} for kind, ms in kinds])
    made = MessageCursor(rows, "t", 0, Message, kernel=message_kernel).take(len(kinds))
    # librdkafka leaves the time of a message without one at zero.
    wanted = [(1, -1), (1, -1), (1, 0), (2, 0), (0, 0), (1, -5), (1, 2**53), (0, 0)]
    assert [one.timestamp() for one in made] == wanted


def test_no_leader_epoch(message_kernel: ModuleType) -> None:
    rows = batch_from([{"leaderEpoch": epoch} for epoch in (-1, 0, 2**31 - 1)])
    made = MessageCursor(rows, "t", 0, Message, kernel=message_kernel).take(3)
    assert [one.leader_epoch() for one in made] == [None, 0, 2**31 - 1]


def test_as_many_headers_as_librdkafka_takes(message_kernel: ModuleType) -> None:
    rows = batch_from([{"headers": [("h", b"")] * count} for count in (1, 100_000, 100_001)])
    made = MessageCursor(rows, "t", 0, recorded, kernel=message_kernel).take(3)
    assert [None if one[5] is None else len(one[5]) for one in made] == [1, 100_000, None]


def test_a_header_key_that_is_no_utf8(message_kernel: ModuleType) -> None:
    data = bytearray(encode_batch(0, [Record(0, headers=(("ab", b"x"),))]))
    data[data.index(b"ab")] = 0xFF
    head = read_header(memoryview(data), 0, position=0)
    assert isinstance(head, BatchHeader)
    rows = built(BatchReader("t", 0, MESSAGE_COLUMNS), head, memoryview(data))
    (made,) = MessageCursor(rows, "t", 0, Message, kernel=message_kernel).take(1)
    assert made.headers() == [("\N{REPLACEMENT CHARACTER}b", b"x")]


def test_how_a_cursor_moves(message_kernel: ModuleType) -> None:
    """The cursor moves over records with the offsets 100, 101, 102, 104 and 109."""
    cursor = MessageCursor(batch_of(*SOME), "t", 0, Message, kernel=message_kernel)
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
    cursor = MessageCursor(batch_of(*SOME), "t", 0, Message, kernel=message_kernel)
    cursor.skip_before(110)
    assert (len(cursor), cursor.next_offset, cursor.take(1)) == (0, None, [])


def test_no_rows(message_kernel: ModuleType) -> None:
    nothing: list[Any] = [pa.array([], field.type) for field in SCHEMA]
    for rows in (
        batch_of(*SOME).slice(5),
        batch_from([]),
        pa.RecordBatch.from_arrays(nothing, schema=SCHEMA),
    ):
        cursor = MessageCursor(rows, "t", 0, Message, kernel=message_kernel)
        assert (len(cursor), cursor.next_offset, cursor.take(3)) == (0, None, [])


def test_columns_in_any_order_beside_others(message_kernel: ModuleType) -> None:
    for order in (COLUMNS, tuple(reversed(COLUMNS)), MESSAGE_COLUMNS[3:] + MESSAGE_COLUMNS[:3]):
        rows = batch_of(*SOME, columns=order)
        made = MessageCursor(rows, "t", 0, recorded, kernel=message_kernel).take(5)
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
@settings(deadline=None)
def test_any_rows_in_any_slice_in_any_steps(message_kernel: ModuleType, rows: list[dict[str, Any]], data: Any) -> None:
    """Also out of the middle of larger buffers, where no column begins at a whole byte of its validity bits."""
    numbered = [USUAL | row | {"offset": number} for number, row in enumerate(rows)]
    whole = pa.RecordBatch.from_pylist(numbered, schema=SCHEMA)
    first = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(first, len(rows)))
    cursor = MessageCursor(whole.slice(first, stop - first), "t", 7, recorded, kernel=message_kernel)
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


def test_slices_below_the_columns(message_kernel: ModuleType) -> None:
    """A list array whose items, keys and values are each a part of something larger."""
    names, values = pa.array(["-", "-", "a", None, "b"])[2:], pa.array([b"-", b"1", None, b"2"], pa.binary())[1:]
    items = pa.StructArray.from_arrays([names, values], fields=list(SCHEMA.field("headers").type.value_type))
    kept = items.take(pa.array([0, 0, 0, 2])).slice(1)
    lists: Any = pa.ListArray.from_arrays(pa.array([0, 0, 1, 3], pa.int32()), kept, type=SCHEMA.field("headers").type)
    rows = batch_from([{}, {}])
    rows = rows.set_column(5, SCHEMA.field("headers"), lists.slice(1))
    made = MessageCursor(rows, "t", 0, recorded, kernel=message_kernel).take(2)
    assert [one[5] for one in made] == [[("a", b"1")], [("a", b"1"), ("b", b"2")]]


def test_who_keeps_the_arguments_has_them_for_good(message_kernel: ModuleType) -> None:
    """An exception keeps the very tuple that it was called with."""
    made = MessageCursor(batch_of(*SOME), "t", 0, Exception, kernel=message_kernel).take(5)
    assert [one.args for one in made] == [expected(record) for record in SOME]


def test_a_class_that_raises_gives_out_nothing(message_kernel: ModuleType) -> None:
    calls = itertools.count()

    def fails_once(*arguments: Any) -> Arguments:
        if next(calls) == 2:
            raise OSError("the third")
        return arguments

    cursor = MessageCursor(batch_of(*SOME), "t", 0, fails_once, kernel=message_kernel)
    with pytest.raises(OSError, match="the third"):
        cursor.take(4)
    assert (len(cursor), cursor.next_offset) == (5, 100)
    assert cursor.take(5) == [expected(record) for record in SOME]


def test_messages_outlive_their_batch_and_nothing_outlives_them(message_kernel: ModuleType) -> None:
    topic = "".join(["to", "pic"])
    size_bytes = 1 << 20
    held = sys.getrefcount(topic)
    tracemalloc.start()
    try:
        for number in range(8):
            large = [Record(delta, key=b"k" * size_bytes, value=b"%d" % number * size_bytes) for delta in range(2)]
            cursor = MessageCursor(batch_of(*large), topic, 0, Message, kernel=message_kernel)
            made = cursor.take(2)
            del cursor, large
            assert made[1].value() == b"%d" % number * size_bytes
            del made
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left_bytes < size_bytes
    assert sys.getrefcount(topic) == held


def test_the_source_runs_where_cython_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cython", None)
    path = Path(remote_fetch.decode.__path__[0]) / "_messages.py"
    loader = SourceFileLoader("remote_fetch.decode._messages_without_cython", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    kernel = importlib.util.module_from_spec(spec)
    loader.exec_module(kernel)
    assert kernel.cython is _shadow
    assert not kernel.COMPILED
    made = MessageCursor(batch_of(*SOME), "t", 0, recorded, kernel=kernel).take(5)
    assert made == [expected(record) for record in SOME]

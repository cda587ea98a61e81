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
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.decode import run_reference
from remote_fetch.decode.columns import COLUMNS
from remote_fetch.decode.decoded_rows import DecodedRows
from remote_fetch.decode.messages import MESSAGE_COLUMNS, MessageCursor
from remote_fetch.decode.run_decoder import BatchReader
from remote_fetch.formats.batches import HEADER_BYTES, BatchHeader, read_header
from remote_fetch.testing.records import Record, encode_batch
from tests.cases import each_of
from tests.decoded import decoded, fields
from tests.searches import examples

EVERYTHING = 2**63 - 1
BASE_MS = 1_700_000_000_000

Arguments = tuple[Any, ...]
"""The arguments of the class of the messages."""


@pytest.fixture(params=["plain", "native"], scope="session")
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """Each inner loop in turn."""
    native: ModuleType = request.getfixturevalue("native_engine") if request.param == "native" else run_reference
    return native


def batch_of(
    engine: ModuleType, *records: Record, columns: tuple[str, ...] = MESSAGE_COLUMNS, **options: Any
) -> DecodedRows:
    """The rows of one Kafka batch."""
    options = {"base_timestamp_ms": BASE_MS, "leader_epoch": 3} | options
    data = memoryview(encode_batch(100, records, **options))
    head = read_header(data, 0, position=0)
    assert isinstance(head, BatchHeader)
    return built(BatchReader("t", 0, columns, engine=engine), head, data)


def built(reader: BatchReader, head: BatchHeader, data: memoryview) -> DecodedRows:
    """The only rows that come of it."""
    (only,) = reader.read(head, data[HEADER_BYTES:], 0, EVERYTHING)
    return only


def batch_from(engine: ModuleType, rows: list[dict[str, Any]]) -> DecodedRows:
    """These rows, completed by `USUAL`."""
    return decoded(rows, engine=engine)


def recorded(*arguments: Any) -> Arguments:
    """Stands for the class of the messages."""
    return arguments


def expected(record: Record, leader_epoch: int = 3) -> Arguments:
    """The fields that librdkafka's binding would give for a record of `batch_of`."""
    headers = [(name.partition("\0")[0], value) for name, value in record.headers]
    stamp = (1, BASE_MS + record.timestamp_delta_ms)
    offset = 100 + record.offset_delta
    return ("t", 0, offset, record.key, record.value, headers or None, None, stamp, -1.0, leader_epoch)


SOME = (
    Record(0, 0, None, None),
    Record(1, 5, b"", b""),
    Record(2, 5, b"key", b"value" * 100, (("a", b"1"),)),
    Record(4, -7, b"key", None, (("null", None), ("null", b""), ("", b"\0"))),
    Record(9, 2**31, None, b"v", (("schlüssel-ключ", b"x"), ("cut\0here", b"y"), ("\0", None))),
)


def test_the_arguments_of_the_class(engine: ModuleType) -> None:
    cursor = MessageCursor(batch_of(engine, *SOME), "t", 0, recorded)
    assert cursor.take(len(SOME)) == [expected(record) for record in SOME]


def test_messages_are_those_of_the_client(engine: ModuleType) -> None:
    messages = MessageCursor(batch_of(engine, *SOME), "t", 0, Message).take(len(SOME))
    by_hand = [Message(*expected(record)) for record in SOME]
    assert [fields(one) for one in messages] == [fields(one) for one in by_hand]
    assert messages == by_hand
    assert [one.__reduce__() for one in messages] == [one.__reduce__() for one in by_hand]
    assert pickle.loads(pickle.dumps(messages)) == by_hand
    assert messages[0].headers() is None
    assert messages[0].latency() is None
    assert [messages[0].key(), messages[1].key(), len(messages[0])] == [None, b"", 0]


def test_kinds_of_timestamps(engine: ModuleType) -> None:
    by_the_broker = batch_of(engine, Record(0, 1), Record(1, 2), log_append_time_ms=77)
    made = MessageCursor(by_the_broker, "t", 0, Message).take(2)
    assert [one.timestamp() for one in made] == [(2, 77), (2, 77)]
    kinds = [(0, -1), (0, -1), (0, 0), (1, 0), (-1, -1), (0, -5), (0, 2**53), (-1, 4)]
    rows = batch_from(engine, [{"timestampType": kind, "timestampMs": ms} for kind, ms in kinds])
    made = MessageCursor(rows, "t", 0, Message).take(len(kinds))
    # librdkafka leaves the time of a message without one at zero.
    wanted = [(1, -1), (1, -1), (1, 0), (2, 0), (0, 0), (1, -5), (1, 2**53), (0, 0)]
    assert [one.timestamp() for one in made] == wanted


def test_no_leader_epoch(engine: ModuleType) -> None:
    rows = batch_from(engine, [{"leaderEpoch": epoch} for epoch in (-1, 0, 2**31 - 1)])
    made = MessageCursor(rows, "t", 0, Message).take(3)
    assert [one.leader_epoch() for one in made] == [None, 0, 2**31 - 1]


def test_as_many_headers_as_librdkafka_takes(engine: ModuleType) -> None:
    rows = batch_from(engine, [{"headers": [("h", b"")] * count} for count in (1, 100_000, 100_001)])
    made = MessageCursor(rows, "t", 0, recorded).take(3)
    assert [None if one[5] is None else len(one[5]) for one in made] == [1, 100_000, None]


def test_a_header_key_that_is_no_utf8(engine: ModuleType) -> None:
    data = bytearray(encode_batch(0, [Record(0, headers=(("ab", b"x"),))]))
    data[data.index(b"ab")] = 0xFF
    head = read_header(memoryview(data), 0, position=0)
    assert isinstance(head, BatchHeader)
    rows = built(BatchReader("t", 0, MESSAGE_COLUMNS, engine=engine), head, memoryview(data))
    (made,) = MessageCursor(rows, "t", 0, Message).take(1)
    assert made.headers() == [("\N{REPLACEMENT CHARACTER}b", b"x")]


def test_how_a_cursor_moves(engine: ModuleType) -> None:
    """The cursor moves over records with the offsets 100, 101, 102, 104 and 109."""
    cursor = MessageCursor(batch_of(engine, *SOME), "t", 0, Message)
    assert len(cursor) == 5
    assert cursor.take(0) == cursor.take(-1) == []
    assert [one.offset() for one in cursor.take(1)] == [100]
    cursor.skip_before(50)
    assert len(cursor) == 4
    cursor.skip_before(103)
    assert len(cursor) == 2
    cursor.skip_before(104)
    assert [one.offset() for one in cursor.take(10)] == [104, 109]
    assert len(cursor) == 0
    cursor.skip_before(0)
    assert cursor.take(10) == []
    cursor = MessageCursor(batch_of(engine, *SOME), "t", 0, Message)
    cursor.skip_before(110)
    assert (len(cursor), cursor.take(1)) == (0, [])


@each_of("skipped", [0, 9, 10, 14, 20, 25, 26, 99])
def test_a_cursor_moves_over_joined_runs(engine: ModuleType, skipped: int) -> None:
    offsets = [range(10), range(0), range(10, 20), range(20, 26)]
    rows = DecodedRows.joined([batch_from(engine, [{"offset": offset} for offset in part]) for part in offsets])
    cursor = MessageCursor(rows, "t", 0, recorded)
    cursor.skip_before(skipped)
    assert [one[2] for one in cursor.take(99)] == list(range(skipped, 26))


def test_no_rows(engine: ModuleType) -> None:
    rows = batch_from(engine, [])
    assert (rows.num_rows, rows.end_offset, rows.to_arrow()) == (0, 0, [])
    cursor = MessageCursor(rows, "t", 0, Message)
    cursor.skip_before(7)
    assert (len(cursor), cursor.take(3)) == (0, [])


def test_columns_in_any_order_beside_others(engine: ModuleType) -> None:
    for order in (COLUMNS, tuple(reversed(COLUMNS)), MESSAGE_COLUMNS[3:] + MESSAGE_COLUMNS[:3]):
        rows = batch_of(engine, *SOME, columns=order)
        made = MessageCursor(rows, "t", 0, recorded).take(5)
        assert made == [expected(record) for record in SOME]


@pytest.mark.parametrize("missing", MESSAGE_COLUMNS)
def test_a_column_that_is_missing(engine: ModuleType, missing: str) -> None:
    rows = batch_of(engine, *SOME, columns=tuple(name for name in MESSAGE_COLUMNS if name != missing))
    with pytest.raises(ValueError, match=f"^a message needs the column '{missing}'$"):
        MessageCursor(rows, "t", 0, Message)


def test_rows_are_taken_once(engine: ModuleType) -> None:
    rows = batch_of(engine, *SOME)
    assert MessageCursor(rows, "t", 0, recorded).take(5)
    with pytest.raises(RuntimeError, match=r"^the columns are taken already$"):
        rows.to_arrow()
    with pytest.raises(RuntimeError, match=r"^the columns are taken already$"):
        MessageCursor(rows, "t", 0, recorded)
    rows = batch_of(engine, *SOME)
    assert rows.to_arrow() is rows.to_arrow()
    with pytest.raises(RuntimeError, match=r"^the columns are taken already$"):
        MessageCursor(rows, "t", 0, recorded)
    with pytest.raises(RuntimeError, match=r"^the columns are taken already$"):
        DecodedRows.joined([rows, batch_of(engine, *SOME)])


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
def test_any_rows_in_any_steps(engine: ModuleType, rows: list[dict[str, Any]], data: Any) -> None:
    cursor = MessageCursor(batch_from(engine, [row | {"offset": at} for at, row in enumerate(rows)]), "t", 7, recorded)
    made: list[Any] = []
    while len(cursor):
        made += cursor.take(data.draw(st.integers(1, 10)))
    assert made == [
        (
            "t",
            7,
            number,
            row["key"],
            row["value"],
            [(name.partition("\0")[0], value) for name, value in row["headers"]] or None,
            None,
            (row["timestampType"] + 1, row["timestampMs"]),
            -1.0,
            row["leaderEpoch"],
        )
        for number, row in enumerate(rows)
    ]


def test_who_keeps_the_arguments_has_them_for_good(engine: ModuleType) -> None:
    """An exception keeps the very tuple that it was called with."""
    made = MessageCursor(batch_of(engine, *SOME), "t", 0, Exception).take(5)
    assert [one.args for one in made] == [expected(record) for record in SOME]


def test_a_class_that_raises_gives_out_nothing(engine: ModuleType) -> None:
    calls = itertools.count()

    def fails_once(*arguments: Any) -> Arguments:
        if next(calls) == 2:
            raise OSError("the third")
        return arguments

    cursor = MessageCursor(batch_of(engine, *SOME), "t", 0, fails_once)
    with pytest.raises(OSError, match="the third"):
        cursor.take(4)
    assert len(cursor) == 5
    assert cursor.take(5) == [expected(record) for record in SOME]


def test_messages_outlive_their_batch_and_nothing_outlives_them(engine: ModuleType) -> None:
    topic = "".join(["to", "pic"])
    size_bytes = 1 << 20
    held = sys.getrefcount(topic)
    tracemalloc.start()
    try:
        for number in range(8):
            large = [Record(delta, key=b"k" * size_bytes, value=b"%d" % number * size_bytes) for delta in range(2)]
            cursor = MessageCursor(batch_of(engine, *large), topic, 0, Message)
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
        row | {"offset": number, "headers": lists[number], "timestampType": kinds[number]}
        for number, row in enumerate(rows)
    ]
    first = data.draw(st.integers(0, 3))
    steps = [*data.draw(st.lists(st.integers(1, 10), max_size=10)), len(rows)]

    def messages(engine: ModuleType) -> list[Any]:
        cursor = MessageCursor(batch_from(engine, numbered), "t", 7, recorded)
        cursor.skip_before(first)
        return [one for step in steps for one in cursor.take(step)]

    plain, fast = messages(run_reference), messages(native_engine)
    assert plain == fast
    assert [list(map(type, one)) for one in plain] == [list(map(type, one)) for one in fast]


def rows_from(engine: ModuleType, make: Callable[..., Any] = recorded) -> Any:
    """Two rows, the second with a header."""
    rows = [
        {"key": b"a", "value": b"", "offset": 5, "timestampMs": 7, "leaderEpoch": 3},
        {"key": b"b", "value": b"bcd", "offset": 6, "timestampMs": 8, "timestampType": 1, "leaderEpoch": 3},
    ]
    rows[1]["headers"] = [("a", b"b")]
    return batch_from(engine, rows).run.messages(make, "t", 9)


TWO_ROWS = [
    ("t", 9, 5, b"a", b"", None, None, (1, 7), -1.0, 3),
    ("t", 9, 6, b"b", b"bcd", [("a", b"b")], None, (2, 8), -1.0, 3),
]


def test_some_of_the_rows(engine: ModuleType) -> None:
    rows = rows_from(engine)
    assert rows.messages(0, 2) == TWO_ROWS
    assert rows.messages(1, 2) == TWO_ROWS[1:]
    for nothing in ((0, 0), (2, 1), (-3, -3), (0, -1), (2**63 - 1, -(2**63))):
        assert rows.messages(*nothing) == []
    assert [rows.offset(row) for row in (0, 1)] == [5, 6]


@each_of("start, stop", [(0, 3), (-1, 1), (-1, 0), (2, 3), (0, 2**63 - 1), (-(2**63), 2**63 - 1)])
def test_rows_outside_the_columns(engine: ModuleType, start: int, stop: int) -> None:
    with pytest.raises(IndexError, match=r"^a row outside its columns$"):
        rows_from(engine).messages(start, stop)
    with pytest.raises(IndexError, match=r"^a row outside its columns$"):
        rows_from(engine).offset(2)
    with pytest.raises(IndexError, match=r"^a row outside its columns$"):
        rows_from(engine).offset(-1)


def test_rows_with_headers_between_rows_without(engine: ModuleType) -> None:
    lists: list[list[tuple[str, bytes | None]]] = [[], [("a", None)], [], [("a", b""), ("b", b"")], [("a", b"1")], []]
    rows = batch_from(engine, [{"headers": headers} for headers in lists])
    made = MessageCursor(rows, "t", 0, recorded).take(6)
    assert [one[5] for one in made] == [headers or None for headers in lists]


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
    made = MessageCursor(batch_from(native_engine, rows), "t", 0, Sometimes).take(20)
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

    rows = batch_from(engine, [{"offset": number, "headers": [("h", b"")] * (number % 2)} for number in range(6)])
    assert MessageCursor(rows, "t", 0, make).take(6) == list(range(6))
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

    def once() -> None:
        rows = batch_from(engine, [{"value": b"v" * 10_000, "headers": [("h", b"1")]}] * 8)
        with pytest.raises(type(raised)):
            MessageCursor(rows, topic, partition, Raising).take(8)
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
    made = batch_from(engine, [{"key": None, "headers": [("h", None)] * (number % 2)} for number in range(1000)])
    rows = made.run.messages(recorded, "t", 0)

    def once() -> None:
        assert len(rows.messages(0, 1000)) == 1000

    once()
    before = sys.getrefcount(None)
    for _ in range(100):
        once()
    assert abs(sys.getrefcount(None) - before) < 1000


def test_the_pair_of_a_timestamp_is_shared_until_it_changes(native_engine: ModuleType) -> None:
    rows = batch_from(native_engine, [{"timestampMs": 7}, {"timestampMs": 7}, {"timestampMs": 8}, {"timestampMs": 7}])
    pairs = [one[7] for one in MessageCursor(rows, "t", 0, recorded).take(4)]
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

    rows = batch_of(engine, *SOME).run.messages(make, "t", 0)
    assert rows.messages(0, 5) == inner == [expected(record) for record in SOME]
    assert rows.messages(1, 2) == [expected(SOME[1])]


def test_nothing_of_a_row_stays_after_a_call(native_engine: ModuleType) -> None:
    """The rows keep the tuple for the next call. It would keep the last key, value and headers."""
    rows = batch_from(native_engine, [{"key": b"key" * 9, "value": b"value" * 9, "headers": [("h", b"1")]}] * 3)
    cursor = MessageCursor(rows, "t", 0, recorded)
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

        last.rows = MessageCursor(batch_from(engine, [{"headers": [("h", b"1")]}]), "t", 0, make)
        assert last.rows.take(1) == [1]
        return weakref.ref(last)

    gone = cycle()
    gc.collect()
    assert gone() is None

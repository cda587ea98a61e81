# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""The inner loop from Arrow's columns to message objects: one call of the message class a row.

Rules of the file:

- One source, two lives, as `_columns.py`. Typed memoryviews only; pointers only into a view.
- Reads are not bounds-checked. `messages.py` has checked types and lengths, and Arrow's offsets are trusted, as Arrow
  itself trusts them.
- If confluent_kafka's binding shows a record differently from the columns, this module follows the binding.
"""

from __future__ import annotations

try:
    import cython
except ImportError:  # only in plain Python: compiled code needs no `cython` module at run time
    from remote_fetch.decode import _shadow as cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.object import PyObject_Call
    from cython.cimports.cpython.ref import Py_INCREF, Py_REFCNT
    from cython.cimports.cpython.tuple import PyTuple_New, PyTuple_SetItem
    from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8

COMPILED = bool(cython.compiled)

# The positions of the arguments of confluent_kafka.Message.
TOPIC = cython.declare(cython.int, 0)
PARTITION = cython.declare(cython.int, 1)
OFFSET = cython.declare(cython.int, 2)
KEY = cython.declare(cython.int, 3)
VALUE = cython.declare(cython.int, 4)
HEADERS = cython.declare(cython.int, 5)
ERROR = cython.declare(cython.int, 6)
TIMESTAMP = cython.declare(cython.int, 7)
LATENCY = cython.declare(cython.int, 8)
LEADER_EPOCH = cython.declare(cython.int, 9)
ARGUMENTS = cython.declare(cython.int, 10)

NO_TIMESTAMP = (0, 0)
"""librdkafka's timestamp of a message of magic 0: the type "not available" and 0, not Kafka's -1."""

# librdkafka treats more headers than this as malformed, and gives none.
MAX_HEADERS = cython.declare(cython.int, 100_000)


@cython.cclass
class Cells:
    """A binary or string column as input: Arrow's offsets, data and validity bits (None: no item is null).

    `ends` begins at the column's first item. `first_bit` is the index of that item's validity bit.
    """

    ends: cython.const[cython.int][::1]
    data: cython.const[cython.uchar][::1]
    validity: cython.const[cython.uchar][::1]
    first_bit: cython.longlong
    has_validity: cython.bint

    def __init__(
        self,
        ends: cython.const[cython.int][::1],
        data: cython.const[cython.uchar][::1],
        validity: cython.const[cython.uchar][::1] = None,
        first_bit: cython.longlong = 0,
    ) -> None:
        self.ends = ends
        self.data = data
        self.validity = validity
        self.has_validity = validity is not None
        self.first_bit = first_bit

    @cython.cfunc
    @cython.inline
    def item(self, row: cython.longlong) -> object:
        """A copy of the item as bytes, or None."""
        if self.has_validity:
            bit: cython.longlong = self.first_bit + row
            if not self.validity[bit >> 3] >> (bit & 7) & 1:
                return None
        start: cython.longlong = self.ends[row]
        stop: cython.longlong = self.ends[row + 1]
        if cython.compiled:
            first = cython.cast(cython.p_char, cython.address(self.data[start]))
            return PyBytes_FromStringAndSize(first, stop - start)
        else:
            return bytes(self.data[start:stop])

    @cython.cfunc
    @cython.inline
    def name(self, row: cython.longlong) -> object:
        """The item as text; it is not null. It ends at the first NUL, because the binding reads it as a C string."""
        start: cython.longlong = self.ends[row]
        stop: cython.longlong = self.ends[row + 1]
        end: cython.longlong = start
        while end < stop and self.data[end] != 0:
            end += 1
        if cython.compiled:
            first = cython.cast(cython.p_char, cython.address(self.data[start]))
            return PyUnicode_DecodeUTF8(first, end - start, cython.NULL)
        else:
            return str(self.data[start:end], "utf-8")


@cython.cfunc
@cython.inline
def _put(arguments: object, index: cython.int, item: object) -> object:
    """Set one argument of the next call."""
    if cython.compiled:
        Py_INCREF(item)  # the next line takes the reference
        PyTuple_SetItem(arguments, index, item)
    else:
        arguments[index] = item


@cython.cfunc
@cython.inline
def _call(make: object, arguments: object) -> object:
    if cython.compiled:
        return PyObject_Call(make, arguments, cython.cast(object, cython.NULL))
    else:
        return make(*arguments)


@cython.cclass
class Rows:
    """The columns of one record batch, and the arguments that all its messages share.

    `make` is called with ten arguments in the order of confluent_kafka.Message, the latency -1.0 being "none".
    """

    make: object
    topic: object
    partition: object
    key: Cells
    value: Cells
    offset: cython.const[cython.longlong][::1]
    timestamp_ms: cython.const[cython.longlong][::1]
    timestamp_type: cython.const[cython.int][::1]
    leader_epoch: cython.const[cython.int][::1]
    header_ends: cython.const[cython.int][::1]
    header_key: Cells
    header_value: Cells

    def __init__(
        self,
        make: object,
        topic: object,
        partition: object,
        *,
        key: Cells,
        value: Cells,
        offset: cython.const[cython.longlong][::1],
        timestamp_ms: cython.const[cython.longlong][::1],
        timestamp_type: cython.const[cython.int][::1],
        leader_epoch: cython.const[cython.int][::1],
        header_ends: cython.const[cython.int][::1],
        header_key: Cells,
        header_value: Cells,
    ) -> None:
        self.make = make
        self.topic = topic
        self.partition = partition
        self.key = key
        self.value = value
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch
        self.header_ends = header_ends
        self.header_key = header_key
        self.header_value = header_value

    def messages(self, start: cython.longlong, stop: cython.longlong) -> list:
        """The messages of rows [start, stop). Raises the errors of `make`."""
        made: list = []
        arguments: object = None
        stamp: object = None
        stamped: cython.longlong = start
        row: cython.longlong
        for row in range(start, stop):
            # One tuple serves all calls, unless the callee kept a reference; then it keeps that tuple.
            if arguments is None or (cython.compiled and Py_REFCNT(arguments) != 1):
                arguments = self._arguments()
            if row == start or not self._is_stamped_alike(row, stamped):
                stamp = self._stamp(row)
                stamped = row
            _put(arguments, OFFSET, self.offset[row])
            _put(arguments, KEY, self.key.item(row))
            _put(arguments, VALUE, self.value.item(row))
            _put(arguments, HEADERS, self._headers(row))
            _put(arguments, TIMESTAMP, stamp)
            _put(arguments, LEADER_EPOCH, self.leader_epoch[row])
            made.append(_call(self.make, arguments))
        return made

    @cython.cfunc
    def _arguments(self) -> object:
        """The arguments of a call, with the arguments that all calls share filled in."""
        arguments: object = PyTuple_New(ARGUMENTS) if cython.compiled else [None] * ARGUMENTS
        _put(arguments, TOPIC, self.topic)
        _put(arguments, PARTITION, self.partition)
        _put(arguments, ERROR, None)
        _put(arguments, LATENCY, -1.0)
        return arguments

    @cython.cfunc
    @cython.inline
    def _is_stamped_alike(self, row: cython.longlong, other: cython.longlong) -> cython.bint:
        return (
            self.timestamp_ms[row] == self.timestamp_ms[other]
            and self.timestamp_type[row] == self.timestamp_type[other]
        )

    @cython.cfunc
    @cython.inline
    def _stamp(self, row: cython.longlong) -> object:
        """Type and milliseconds. librdkafka counts types from "not available", Kafka from CreateTime."""
        if self.timestamp_type[row] < 0:
            return NO_TIMESTAMP
        return (self.timestamp_type[row] + 1, self.timestamp_ms[row])

    @cython.cfunc
    @cython.inline
    def _headers(self, row: cython.longlong) -> object:
        start: cython.longlong = self.header_ends[row]
        stop: cython.longlong = self.header_ends[row + 1]
        if start == stop or stop - start > MAX_HEADERS:
            return None
        return self._header_list(start, stop)

    @cython.cfunc
    def _header_list(self, start: cython.longlong, stop: cython.longlong) -> list:
        headers: list = []
        index: cython.longlong
        for index in range(start, stop):
            headers.append((self.header_key.name(index), self.header_value.item(index)))
        return headers

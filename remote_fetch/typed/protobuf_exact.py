"""Where ptars reads a Protobuf message otherwise than Google's library: found in its columns, for a batch at once.

    on the wire                                     ptars                    Google's library
    two members of one oneof                        both                     the last one
    one of them a number that its enum lacks        both                     the other one (proto2)
    a key of a map twice                            both entries             the last one
    an entry of a map without its message           null                     an empty message
    a time beyond 64 bits of microseconds           the nearest that fits    a number of seconds

Rules of the file:

- Google's writers write none of these; messages whose bytes were joined, and other encoders, have them. So a batch is
  only looked at, and the values that have one are written again by Google's library.
- The others of the batch are not: a value must not depend on its neighbours, and Google's library sorts maps.
- Only what the message has is looked for: most messages have no oneof and no map, and cost nothing.
- Columns do not show these differences, so they stay: of a Timestamp, Duration, wrapper or message inside itself that
  stands twice ptars takes the last, and Google's library joins both. An entry of a map with unknown fields is an entry
  for ptars and for Java, and none for Google's library in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remote_fetch.typed.arrays import Column, DataType, holds, pa
from remote_fetch.typed.compute import pc
from remote_fetch.typed.map_keys import as_lists, maps_with_twins
from remote_fetch.typed.outcome import Undecodable

__all__ = ["Oddity", "check_times", "has_times", "oddity"]

Oddity = Callable[[Column], set[int]]
"""The numbers of the rows that may differ from what Google's library reads."""

_LAST_MICROSECOND = 2**63 - 2**22
"""The nanoseconds of a time, 32 bits, may move it away from the largest number."""


def oddity(message: Any, inside: tuple[str, ...] = ()) -> Oddity | None:
    """The check of the columns of a message. None: there is nothing to look for."""
    if message.full_name in inside:
        return None  # bytes
    inside = (*inside, message.full_name)
    oneofs = [[field.name for field in oneof.fields] for oneof in message.oneofs if len(oneof.fields) > 1]
    fields = [(field.name, _of_field(field, inside)) for field in message.fields]
    below = [(name, check) for name, check in fields if check is not None]
    if not oneofs and not below:
        return None

    def odd_rows(rows: Column) -> set[int]:
        found = [_with_several(rows, names) for names in oneofs]
        return set().union(*found, *(check(rows.field(name)) for name, check in below))

    return odd_rows


def has_times(kind: DataType) -> bool:
    """Whether a type has timestamps or durations."""
    return holds(kind, _is_time)


def _is_time(kind: DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind))


def check_times(array: Column) -> None:
    """Raise Undecodable for a time that 64 bits of microseconds do not have."""
    kind = array.type
    if _is_time(kind):
        ends = pc.min_max(array.view(pa.int64())).as_py()
        if ends["max"] is not None and not -_LAST_MICROSECOND < ends["min"] <= ends["max"] < _LAST_MICROSECOND:
            raise Undecodable("a time beyond those of microseconds")
    elif pa.types.is_map(kind):
        check_times(array.items)
    elif pa.types.is_list(kind):
        check_times(array.values)
    elif pa.types.is_struct(kind) and has_times(kind):
        for number in range(kind.num_fields):
            check_times(array.field(number))


def _of_field(field: Any, inside: tuple[str, ...]) -> Oddity | None:
    message = field.message_type
    if message is None:
        return None
    if not message.GetOptions().map_entry:
        check = oddity(message, inside)
        return check if check is None or not field.is_repeated else lambda lists: _parents(lists, check(lists.values))
    value = message.fields_by_name["value"].message_type
    within = None if value is None else oddity(value, inside)

    def odd_rows(maps: Column) -> set[int]:
        items = maps.items
        found = set() if within is None else within(items)
        if value is not None and items.null_count:
            found |= _numbers(items.is_null())
        return maps_with_twins(maps) | _parents(as_lists(maps, items), found)

    return odd_rows


def _numbers(mask: Column) -> set[int]:
    return set(pc.indices_nonzero(mask).to_pylist())


def _parents(lists: Column, numbers: set[int]) -> set[int]:
    """The numbers of the lists that have the items with `numbers`."""
    if not numbers:
        return numbers
    return set(pc.list_parent_indices(lists).take(pa.array(numbers)).to_pylist())


def _with_several(rows: Column, names: list[str]) -> set[int]:
    """The rows that have two of the fields."""
    seen, found = rows.field(names[0]).is_valid(), set()
    for name in names[1:]:
        given = rows.field(name).is_valid()
        found |= _numbers(pc.and_(seen, given))
        seen = pc.or_(seen, given)
    return found

"""Damages bytes in several ways: blindly, entry by entry, as text, as JSON.

Rules of the file:

- A damage is a function of the bytes and of one source of random numbers, so that it can be repeated.
- It knows no format. The caller repairs lengths and checksums.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from struct import Struct
from struct import error as StructError
from typing import Any

__all__ = ["damage_entries", "damage_json", "damage_numbers", "damage_varints", "mutate"]

_EDGES = tuple(
    value.to_bytes(width, "big")
    for width in (1, 2, 4, 8)
    for value in (0, 1, (1 << 8 * width - 1) - 1, 1 << 8 * width - 1, (1 << 8 * width) - 1)
)
_VARINTS = (
    b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\x80\x01", b"\xff\x7f", b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x00",
    b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80" * 9 + b"\x00", b"\x80" * 12,
)  # fmt: skip
"""Zig-zag numbers at the limits of 32 and 64 bits, in more bytes than needed, and in more bytes than allowed."""
_ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**70, 10**400, 0.5, float("nan"), "", "x", "-1", "\ud800", [], [[]], {},
    [1] * 3,
)  # fmt: skip


def mutate(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to four changes: flipped bits, edge values, bytes removed, doubled, moved or inserted, a cut."""
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(damaged) + 1)
        length = chance.choice((1, 2, 4, 8, 13, 64))
        match chance.randrange(7):
            case 0 if at < len(damaged):
                damaged[at] ^= 1 << chance.randrange(8)
            case 1:
                edge = chance.choice(_EDGES)
                damaged[at : at + len(edge)] = edge
            case 2:
                del damaged[at : at + length]
            case 3:
                damaged[at:at] = damaged[at : at + length]
            case 4:
                damaged[at:at] = chance.randbytes(length)
            case 5:
                other = chance.randrange(len(damaged) + 1)
                moved = damaged[other : other + length]
                damaged[at : at + len(moved)] = moved
            case _:
                del damaged[at:]
    return bytes(damaged)


def damage_varints(data: bytes, chance: random.Random) -> bytes:
    """`data` with an unusual varint at a random place: too long, out of range, or at a limit.

    The varint replaces up to eight bytes, or is inserted.
    """
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_VARINTS) + data[at + chance.choice((0, 1, 1, 1, 2, 5, 8)) :]


def damage_entries(data: bytes, entry: Struct, chance: random.Random) -> bytes:
    """The complete entries, with one entry changed in a field, doubled, removed or moved."""
    entries = [list(fields) for fields in entry.iter_unpack(data[: len(data) // entry.size * entry.size])]
    if not entries:
        return chance.randbytes(entry.size)
    at = chance.randrange(len(entries))
    match chance.randrange(6):
        case 0:
            entries.insert(at, list(entries[at]))
        case 1:
            del entries[at]
        case 2:
            entries.insert(chance.randrange(len(entries)), entries.pop(at))
        case _:
            field = chance.randrange(len(entries[at]))
            entries[at][field] = _other_number(entries[at][field], [one[field] for one in entries], chance)
    packed = bytearray()
    for fields in entries:
        with contextlib.suppress(OverflowError, ValueError, StructError):  # a number too large for its field
            packed += entry.pack(*fields)
    return bytes(packed)


def _other_number(number: int, neighbours: list[int], chance: random.Random) -> int:
    edges = (0, -1, 1, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
    return chance.choice((number + 1, number - 1, chance.choice(neighbours), chance.choice(edges)))


def damage_numbers(text: bytes, chance: random.Random) -> bytes:
    """The text with one number replaced: by another number, a longer or signed one, or a text without a number."""
    found = list(re.finditer(rb"[0-9]+", text))
    if not found:
        return text
    match = chance.choice(found)
    odd = (b"0", b"1", b"-1", b"+1", b"1_0", b"\xb2", b" 7 ", b"9" * 19, b"9" * 40, b"1e3", b"", match[0] + b"0")
    return text[: match.start()] + chance.choice(odd) + text[match.end() :]


def damage_json(text: bytes, chance: random.Random) -> bytes:
    """The JSON with one value replaced by an odd value, removed, or repeated."""
    root: Any = [json.loads(text)]
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        places += ((node, key) for key in keys)
        waiting += (node[key] for key in keys if isinstance(node[key], (dict, list)))
    node, key = chance.choice(places)
    kind = chance.randrange(8)
    if kind == 0 and node is not root:
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.append(node[key])
    else:
        node[key] = chance.choice(_ODD_VALUES)
    return json.dumps(root[0] if root else None).encode("ascii")

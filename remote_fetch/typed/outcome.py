"""How a decoder tells that it could not decode a value, and the splitting that finds the value among many.

Rules of the file:

- A decoder takes many values and decodes all of them, or raises `Undecodable` for one of them without telling which.
- `decode_each` finds the values that do not decode by halving, so a batch without faults costs one call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from remote_fetch.typed.arrays import Column, DataType, pa

__all__ = ["Decoded", "Decoder", "Undecodable", "decode_each"]


class Undecodable(Exception):
    """One of the values does not decode. The message is the reason. Never raised outside of this package."""


Decoder = Callable[[Column], Column]
"""Decodes binary values, none of them null, to as many typed values. Raises Undecodable."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Typed values. `reasons` tells, by position, why a value did not decode; it is null in `values`."""

    values: Column
    reasons: Mapping[int, str]


def decode_each(decode: Decoder, payloads: Column, arrow_type: DataType) -> Decoded:
    """Decode as many of `payloads` as possible. `arrow_type` is the type of the result."""
    pieces: list[Column] = []
    reasons: dict[int, str] = {}
    todo = [(0, len(payloads))]
    while todo:
        start, stop = todo.pop()
        try:
            pieces.append(decode(payloads.slice(start, stop - start)))
        except Undecodable as error:
            if stop - start == 1:
                reasons[start] = str(error)
                pieces.append(pa.nulls(1, arrow_type))
                continue
            middle = (start + stop) // 2
            todo += [(middle, stop), (start, middle)]
    if len(pieces) == 1:
        return Decoded(pieces[0], reasons)
    return Decoded(pa.concat_arrays(pieces) if pieces else pa.nulls(0, arrow_type), reasons)

"""Keys and payloads that are packed numbers, as kcat's `-s` prints them: `key=FORMAT`, `value=FORMAT` or `FORMAT`.

Rules of the file:

- Bytes that do not fit a format are an error. They are never converted in part.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from remote_fetch.errors import ConfigError

__all__ = ["FIELDS", "Unpack", "fields_of", "unpackers"]

FIELDS = ("key", "value")

Unpack = Callable[[bytes], bytes]
"""Converts a key or payload to text. Raises ConfigError if the bytes do not fit the format."""

_NUMBERS = "bBhHiIqQ"
_OTHERS = " <>cs$"


def fields_of(option: str) -> tuple[Sequence[str], str]:
    """The fields that a value of `-s` is about, and their format."""
    name, equals, pack = option.partition("=")
    return ((name,), pack) if equals and name in FIELDS else (FIELDS, option)


def unpackers(options: Sequence[str]) -> Mapping[str, Unpack]:
    """The conversion of each field by the values of `-s`. A later value wins. Raises ConfigError."""
    found: dict[str, Unpack] = {}
    for option in options:
        fields, pack = fields_of(option)
        for field in fields:
            _check(field, pack)
            found[field] = _unpacker(field, pack)
    return found


def _check(field: str, pack: str) -> None:
    if not pack:
        raise ConfigError(f"-s: the format of the {field} is empty", key="-s")
    for letter in pack:
        if letter not in _NUMBERS + _OTHERS:
            known = " ".join(_NUMBERS + _OTHERS.strip())
            raise ConfigError(f"-s: {letter!r} is no token of a format; there are {known} and the space", key="-s")


def _unpacker(field: str, pack: str) -> Unpack:
    def unpack(data: bytes) -> bytes:
        text, position, order = bytearray(), 0, ">"
        for token in pack:
            left = len(data) - position
            if token in "<>":
                order = token
            elif token == " ":
                text += b" "
            elif token == "$":
                if left:
                    raise ConfigError(f"-s: the {field} has {left} bytes more than its format", key="-s")
            elif token == "s":
                text += data[position:]
                position = len(data)
            else:
                layout = f"{order}{token}"
                size = struct.calcsize(layout)
                if size > left:
                    raise ConfigError(
                        f"-s: the {field} ends early: {token} takes {size} bytes, {left} are left", key="-s"
                    )
                (item,) = struct.unpack_from(layout, data, position)
                text += item if token == "c" else b"%d" % item
                position += size
        return bytes(text)

    return unpack

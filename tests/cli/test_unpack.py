"""Packed numbers: each token is compared with Python's own struct."""

from __future__ import annotations

import struct

import pytest

from remote_fetch.cli.unpack import unpackers
from remote_fetch.errors import ConfigError
from tests.cases import each_of

DATA = bytes(range(0xF8, 0x100)) + b"\x01tail"


@each_of("order", ["", ">", "<"])
@each_of("token", "bBhHiIqQ")
def test_numbers(order: str, token: str) -> None:
    (number,) = struct.unpack_from((order or ">") + token, DATA)
    assert unpackers([f"value={order}{token}"])["value"](DATA) == b"%d" % number


@pytest.mark.parametrize(
    ("pack", "printed"),
    [
        (" ", b" "),
        ("c", b"\xf8"),
        ("s", DATA),
        ("qBs$", b"-506097522914230529 1tail".replace(b" ", b"")),
        ("<h>h B", b"-1544-1285 252"),
        ("qBss$", b"-506097522914230529" + b"1tail"),
        ("q", b"-506097522914230529"),
    ],
)
def test_formats(pack: str, printed: bytes) -> None:
    assert unpackers([pack])["key"](DATA) == printed


def test_a_field_has_the_last_format_that_names_it() -> None:
    unpack = unpackers(["s", "key=b", "value=B", "key=B"])
    assert (unpack["key"](DATA), unpack["value"](DATA)) == (b"248", b"248")
    assert unpackers([]) == {}
    assert unpackers(["value=B"]).keys() == {"value"}


@pytest.mark.parametrize(
    ("pack", "data", "said"),
    [
        ("i", b"abc", "-s: the key ends early: i takes 4 bytes, 3 are left"),
        ("sc", b"abc", "-s: the key ends early: c takes 1 bytes, 0 are left"),
        ("h$", b"abc", "-s: the key has 1 bytes more than its format"),
    ],
)
def test_bytes_that_do_not_fit(pack: str, data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        unpackers([pack])["key"](data)
    assert str(caught.value) == said

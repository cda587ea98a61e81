"""Java's `.properties` files, as brokers read their `server.properties`: `java.util.Properties.load` of a byte stream.

Rules of the file:

- Pure. The text is ISO-8859-1, as Java reads it.
- If a key occurs twice, the last value counts.
- A fault is a ConfigError that names the line's number and shows nothing of the line, because lines hold passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from remote_fetch.errors import ConfigError

__all__ = ["parse_properties"]

MAX_BYTES = 1 << 20
"""The largest file that is read. A broker's file has some kilobytes."""

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u(?P<hex>.{0,4})|(?P<other>.)|$)", re.DOTALL)
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.|\\$)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


def parse_properties(data: bytes) -> dict[str, str]:
    """Every key with its value, in the order in which the keys first occur. Raises ConfigError."""
    if len(data) > MAX_BYTES:
        raise ConfigError(f"a properties file of more than {MAX_BYTES} bytes")
    found = {}
    for number, line in _logical_lines(data.decode("iso-8859-1")):
        key = _KEY.match(line)
        assert key is not None  # the pattern also matches the empty string
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        found[_unescaped(key[0], number)] = _unescaped(line[separator.end() :], number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines, each with the number of its first line. Comments and empty lines are left out.

    A continuation line is never a comment. Blanks at its beginning are dropped.
    """
    whole, goes_on, first = "", False, 1
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not whole:
            first = number
            if line.startswith(("#", "!")):
                continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        whole += line[:-1] if goes_on else line
        if whole and not goes_on:
            yield first, whole
            whole = ""
    if whole:
        yield first, whole


def _unescaped(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text

    def meant(match: re.Match[str]) -> str:
        if match["hex"] is not None:
            if _HEX.fullmatch(match["hex"]) is None:
                raise ConfigError(f"line {line_number}: \\u is not followed by four hexadecimal digits")
            return chr(int(match["hex"], 16))
        other = match["other"] or ""
        return _ESCAPES.get(other, other)

    # A Java character has 16 bits, so a larger code point is a surrogate pair. A lone surrogate becomes U+FFFD.
    return _ESCAPE.sub(meant, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

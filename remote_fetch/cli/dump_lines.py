"""The lines of `dump`: as Kafka's DumpLogSegments prints them, or one JSON object a line.

Rules of the file:

- A line is a list of fields with the tool's names. Both forms are made from the same fields.
- Text is UTF-8. U+FFFD stands for bytes that are not UTF-8, as Java reads them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

from remote_fetch.decode.arrays import java_text

__all__ = ["Lines", "OptionalLong"]


class OptionalLong(NamedTuple):
    """A number that may be missing, which the tool prints as Java does."""

    number: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.number is None else f"OptionalLong[{self.number}]"


class Lines:
    """Writes lines to `output`. `binary` is the JSON form of bytes: `text` or `base64`."""

    def __init__(self, output: BinaryIO, *, as_json: bool = False, binary: str = "text") -> None:
        self._output = output
        self._as_json = as_json
        self._binary = binary
        self._file = ""

    def begin(self, file: str) -> None:
        """Begin the lines of a file."""
        self._file = file
        self.heading(f"Dumping {file}")

    def heading(self, text: str) -> None:
        """A line that JSON leaves out, because every object has its file and kind."""
        if not self._as_json:
            self._output.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def fields(
        self, kind: str, fields: Mapping[str, Any], *, prefix: str = "", more: Mapping[str, Any] | None = None
    ) -> None:
        """One line. A field that is None is left out of the text. JSON has it as null, and the fields `more` too."""
        if self._as_json:
            found = {"file": self._file, "kind": kind, **fields, **(more or {})}
            line = json.dumps({name: self._json(value) for name, value in found.items()}, ensure_ascii=False)
            self._output.write(line.encode("utf-8", "replace") + b"\n")
            return
        text = " ".join(f"{name}: {_text(value)}" for name, value in fields.items() if value is not None)
        self._output.write(f"{prefix}{text}\n".encode())

    def _json(self, value: Any) -> Any:
        if isinstance(value, OptionalLong):
            return value.number
        if isinstance(value, bytes):
            return base64.b64encode(value).decode("ascii") if self._binary == "base64" else java_text(value)
        if isinstance(value, list | tuple):
            return [self._json(item) for item in value]
        return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return java_text(value)
    if isinstance(value, list):
        return f"[{','.join(value)}]"
    return str(value)

"""Keys and values that are text in UTF-8."""

from __future__ import annotations

from remote_fetch.typed.arrays import Column, DataType, pa
from remote_fetch.typed.compute import pc
from remote_fetch.typed.outcome import Decoder, Undecodable
from remote_fetch.typed.schema_text import SchemaText

__all__ = ["StringReader"]


class StringReader:
    """Decodes text."""

    arrow_type: DataType = pa.string()
    kept_as_bytes: tuple[str, ...] = ()

    def decoder(self, writer: SchemaText | None = None, path: tuple[int, ...] = ()) -> Decoder:
        """A decoder of text. Both arguments mean nothing to it."""
        return _decode


def _decode(payloads: Column) -> Column:
    try:
        return pc.cast(payloads, pa.string())
    except pa.ArrowInvalid:
        raise Undecodable("not UTF-8") from None

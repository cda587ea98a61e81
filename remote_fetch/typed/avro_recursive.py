"""Records inside themselves: they are kept as bytes, in the encoding of the reader's schema.

Rules of the file: values are read and written by fastavro's Python code, which ends at Python's limit of depth.
"""

from __future__ import annotations

import io
from collections.abc import Callable

from remote_fetch.typed.avro_schema import AvroSchema
from remote_fetch.typed.outcome import Undecodable

__all__ = ["Recoder", "recoder"]

Recoder = Callable[[str, str], Callable[[bytes], bytes] | None]
"""From two names of records to a function from the writer's bytes to the reader's. None: they are the same."""


def recoder(writer: AvroSchema, reader: AvroSchema) -> Recoder:
    """The recoder of two schemas."""

    def recode(written: str, wanted: str) -> Callable[[bytes], bytes] | None:
        if writer.physical_of(written) == reader.physical_of(wanted):
            return None
        from fastavro import parse_schema  # noqa: PLC0415 - an extra
        from fastavro._read_py import schemaless_reader  # noqa: PLC0415
        from fastavro._write_py import schemaless_writer  # noqa: PLC0415
        from fastavro.read import SchemaResolutionError  # noqa: PLC0415

        old = parse_schema(writer.spelt_out(written))
        new = parse_schema(reader.spelt_out(wanted))

        def change(value: bytes) -> bytes:
            data = io.BytesIO()
            try:
                schemaless_writer(data, new, schemaless_reader(io.BytesIO(value), old, new))
            except RecursionError:
                raise Undecodable("nested too deeply") from None
            except (SchemaResolutionError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise Undecodable(str(error)) from error
            return data.getvalue()

        return change

    return recode

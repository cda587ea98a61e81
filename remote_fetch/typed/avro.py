"""Avro values as columns of a reader's schema, whichever schema wrote them.

Rules of the file:

- One object serves all columns of one reader's schema, and one thread.
- Confluent's serializers for Java and Python write a value of the schema `bytes` as it is, without the length that Avro
  puts in front. Those for .NET and Go write the length. No value tells which one wrote it, so all are read as in Java.
"""

from __future__ import annotations

from remote_fetch.typed.arrays import Column, DataType
from remote_fetch.typed.avro_decode import plain_decoder
from remote_fetch.typed.avro_nodes import Back, Scalar, walk
from remote_fetch.typed.avro_recursive import recoder
from remote_fetch.typed.avro_resolve import resolver
from remote_fetch.typed.avro_schema import AvroSchema
from remote_fetch.typed.outcome import Decoder, Undecodable
from remote_fetch.typed.schema_text import SchemaText

__all__ = ["AvroReader"]


class AvroReader:
    """Decodes Avro values into columns of `schema`.

    - `arrow_type` is the type of the columns.
    - `kept_as_bytes` names the records that contain themselves, whose inner ones are columns of bytes.
    """

    def __init__(self, schema: SchemaText) -> None:
        """Raises ConfigError for a schema that is none of Avro's, and MissingExtra."""
        self._text = schema
        self._schema = AvroSchema.parse(schema)
        self._node = self._schema.node
        self.arrow_type: DataType = self._node.arrow
        self.kept_as_bytes: tuple[str, ...] = tuple(
            sorted({node.name for node in walk(self._node) if isinstance(node, Back)})
        )

    def decoder(self, writer: SchemaText | None = None, path: tuple[int, ...] = ()) -> Decoder:
        """A decoder of framed values of `writer`, by default of plain Avro by the reader's own schema.

        `path` means nothing to Avro.

        Raises Undecodable if the two schemas do not fit, ConfigError for a schema that is none, and MissingExtra.
        """
        if writer is not None and writer.kind != "AVRO":
            raise Undecodable(f"the writer's schema is one of {writer.kind}")
        written = self._schema if writer is None or writer == self._text else AvroSchema.parse(writer)
        is_as_it_is = writer is not None and isinstance(written.node, Scalar) and written.node.kind == "bytes"
        plain: Decoder = (lambda payloads: payloads) if is_as_it_is else plain_decoder(written)
        try:
            resolve = resolver(written.node, self._node, recoder(written, self._schema))
        except RecursionError:
            raise Undecodable("the two schemas are nested too deeply") from None

        def decode(payloads: Column) -> Column:
            try:
                return resolve(plain(payloads), None)
            except RecursionError:  # each record inside a record is resolved inside it
                raise Undecodable("nested too deeply") from None

        return decode

"""Records inside themselves: they are kept as bytes, in the encoding of the reader's schema.

Rules of the file:

- The bytes of the writer are decoded, resolved and encoded again, by the rules that hold for all other values. Each
  level of records inside records is a column of its own.
- The bytes are taken as they are if both schemas mean the same.
- Values are read by fastavro's Python code, which ends at Python's limit of depth, as the levels do.
"""

from __future__ import annotations

from functools import cache

from remote_fetch.typed.arrays import Column, pa
from remote_fetch.typed.avro_decode import plain_decoder
from remote_fetch.typed.avro_encode import encoded
from remote_fetch.typed.avro_nodes import Back, Node
from remote_fetch.typed.avro_resolve import Recoder, Resolver, resolver
from remote_fetch.typed.avro_schema import AvroSchema
from remote_fetch.typed.compute import numbered, pc
from remote_fetch.typed.outcome import Undecodable

__all__ = ["recoder"]


def recoder(writer: AvroSchema, reader: AvroSchema) -> Recoder:
    """The recoder of two schemas."""
    return _Recoder(writer, reader).resolver


class _Recoder:
    """Resolvers of records inside themselves, one for each two of them: they are met again below."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._old = cache(writer.below)  # a node that is met again is the same one
        self._new = cache(reader.below)
        self._made: dict[tuple[str | int, str | int], Resolver] = {}
        self._misfits: dict[tuple[str | int, str | int], str] = {}

    def resolver(self, written: Node, wanted: Node) -> Resolver:
        key = (_key(written), _key(wanted))

        def again(array: Column, hidden: Column | None) -> Column:
            return self._made[key](array, hidden)

        if key in self._misfits:
            raise Undecodable(self._misfits[key])
        if key not in self._made:
            known = len(self._made)
            self._made[key] = again
            try:
                self._made[key] = self._resolver(written, wanted)
            except Undecodable as error:
                self._misfits[key] = str(error)  # it was taken to fit where it is met again, and does not even so
                while len(self._made) > known:
                    self._made.popitem()  # those that were made for this one may need it
                raise
        return self._made[key]

    def _resolver(self, written: Node, wanted: Node) -> Resolver:
        old = self._old(written.name) if isinstance(written, Back) else None
        new = self._new(wanted.name) if isinstance(wanted, Back) else None
        old_node, new_node = written if old is None else old.node, wanted if new is None else new.node
        if old is not None and new is not None and old_node == new_node:
            return lambda array, hidden: array
        decode = None if old is None else plain_decoder(old)
        change = resolver(old_node, new_node, self.resolver)

        def resolve(array: Column, hidden: Column | None) -> Column:
            absent = array.is_null() if hidden is None else pc.or_(array.is_null(), hidden)
            places = pc.indices_nonzero(pc.invert(absent))
            if not len(places):
                return pa.nulls(len(array), wanted.arrow)  # the end of all levels
            given = array.take(places)
            found = change(given if decode is None else decode(given), None)
            if new is not None:
                found = pa.array(encoded(new_node, found), pa.binary())
            return found.take(_back_to(places, len(array)))

        return resolve


def _key(node: Node) -> str | int:
    """A record inside itself by its name, and any other node as the one that it is."""
    return node.name if isinstance(node, Back) else id(node)


def _back_to(places: Column, rows: int) -> Column:
    """For each row its number in `places`, or null."""
    return pc.index_in(numbered(rows), pc.cast(places, pa.int64()))

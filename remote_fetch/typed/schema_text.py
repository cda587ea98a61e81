"""A schema as text, with the texts of the schemas that it refers to, and how a value names its schema.

Rules of the file: pure values, which pickle. A Spark plan carries them to the executors. Nothing of Arrow is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["SchemaRef", "SchemaText"]


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema. `kind` is AVRO, PROTOBUF or JSON; `references` are by the names under which the text knows them.

    `is_encoded`: a rule of the registry encodes the bytes of its values, for example encrypts them.
    """

    kind: str
    text: str
    references: tuple[tuple[str, SchemaText], ...] = ()
    is_encoded: bool = False

    def in_order(self) -> Iterator[str]:
        """The texts of all references, each once and before the texts that refer to it, and this text at the end."""
        seen: set[str] = set()
        for _, schema in self.named():
            if schema.text not in seen:
                seen.add(schema.text)
                yield schema.text
        yield self.text

    def named(self) -> Iterator[tuple[str, SchemaText]]:
        """All references with their names, each before those that refer to it.

        A name may stand for several schemas, of which the last counts. The schema's own are given once more at the end.
        """
        yield from self._below(set())
        yield from self.references

    def _below(self, seen: set[tuple[str, int]]) -> Iterator[tuple[str, SchemaText]]:
        # Each schema once: if two refer to one, and so on below, the paths to it have no bound.
        for name, schema in self.references:
            if (name, id(schema)) not in seen:
                seen.add((name, id(schema)))
                yield from schema._below(seen)
                yield name, schema


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """A schema by its id or its GUID. `path` is the path to a Protobuf message in its file, else empty.

    `context` is the registry's context that counted the id, empty for the default one. GUIDs are of all contexts.
    """

    id: int | None = None
    guid: str | None = None
    path: tuple[int, ...] = ()
    context: str = ""

    def __str__(self) -> str:
        if self.guid is not None:
            return f"GUID {self.guid}"
        return f"id {self.id} in the context {self.context}" if self.context else f"id {self.id}"

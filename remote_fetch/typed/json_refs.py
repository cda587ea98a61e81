"""Where a `$ref` of a JSON Schema leads: by a pointer, an anchor, a schema's own `$id`, or the name of a reference.

Rules of the file:

- Pure. Pointers are those of RFC 6901, and a `$ref` is a URI reference, as JSON Schema says.
- A schema with an `$id` is the root of the pointers below it. If a pointer leads nowhere there, it is followed from the
  root of the document: many schemas are written so.
- A registry gives references by names, and names are URIs to some and names of files to others. So a name also counts
  if its last part is the whole `$ref`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urljoin

from remote_fetch.errors import ConfigError

__all__ = ["Place", "Schemas"]

_VALUES = ("enum", "const", "default", "examples")
"""The words under which values stand, and no schemas."""
_NAMES = ("properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas")
"""The words under which schemas stand by names, and a name may be any word."""
_ANCHORS = ("$anchor", "$dynamicAnchor")


@dataclass(frozen=True)
class Place:
    """Where a schema stands: in a `document`, below the `resource` whose URI is `base`."""

    base: str
    resource: Any
    document: Any


class Schemas:
    """The schemas that can be referred to. `top` is the place of the schema itself."""

    def __init__(self, schema: Any, references: Mapping[str, Any]) -> None:
        """`references` are the other documents, by their names. Raises RecursionError for one that is too deep."""
        self._known: dict[str, tuple[Any, Place]] = {}
        self._anchors: dict[tuple[str, str], tuple[Any, Place]] = {}
        self.top = self._noted("", schema)
        self._named = {name: self._noted(name.partition("#")[0], each) for name, each in references.items()}

    def at(self, schema: Any, place: Place) -> Place:
        """The place of the schemas in a schema that stands at `place`. That of a resource is its own already."""
        if schema is place.resource:
            return place
        own = schema.get(_id_word(place.document)) if isinstance(schema, dict) else None
        uri = own.partition("#")[0] if isinstance(own, str) else ""
        return Place(_joined(place.base, uri), schema, place.document) if uri else place

    def target(self, ref: str, place: Place) -> tuple[Any, Place]:
        """The schema that a `$ref` in a schema at `place` names, and its place. Raises ConfigError if there is none."""
        name, _, fragment = ref.partition("#")
        found = (place.resource, place) if not name else self._resource(name, place)
        if found is None:
            raise ConfigError(f"the JSON Schema refers to {ref!r}, which the registry does not give beside it")
        schema, outer = found
        inner = self.at(schema, outer) if name else place
        fragment = unquote(fragment)
        if not fragment:
            return schema, outer
        if not fragment.startswith("/"):
            target = self._anchors.get((inner.base, fragment))
        else:
            target = self._follow(fragment, schema, inner)
            if target is None:
                target = self._follow(fragment, inner.document, Place(inner.base, inner.document, inner.document))
        if target is None:
            raise ConfigError(f"the JSON Schema refers to {ref!r}, which does not exist")
        return target

    def _resource(self, name: str, place: Place) -> tuple[Any, Place] | None:
        uri = _joined(place.base, name)
        for known in (uri, name, *(each for each in self._named if each.rpartition("/")[2] == name)):
            if known in self._known:
                return self._known[known]
            if known in self._named:
                return self._named[known].document, self._named[known]
        return None

    def _follow(self, pointer: str, schema: Any, place: Place) -> tuple[Any, Place] | None:
        outer = place
        for part in pointer.split("/")[1:]:
            place = outer = self.at(schema, place)
            step = part.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and step in schema:
                schema = schema[step]
            elif isinstance(schema, list) and _is_index(step) and int(step) < len(schema):
                schema = schema[int(step)]
            else:
                return None
        return schema, outer

    def _noted(self, uri: str, document: Any) -> Place:
        """The place of a document, of which all schemas are kept in mind."""
        own = self.at(document, Place(uri, None, document)).base
        place = Place(own, document, document)
        if own != uri:
            self._known.setdefault(own, (document, place))
        self._note(document, place)
        return place

    def _note(self, schema: Any, place: Place) -> None:
        """Keep in mind the schemas that have an `$id` or an anchor."""
        if isinstance(schema, list):
            for each in schema:
                self._note(each, place)
        if not isinstance(schema, dict):
            return
        inner = self.at(schema, place)
        if inner is not place:
            self._known.setdefault(inner.base, (schema, place))
        for anchor in _anchors_of(schema, place.document):
            self._anchors.setdefault((inner.base, anchor), (schema, place))
        for word, below in schema.items():
            if word in _NAMES and isinstance(below, dict):
                self._note(list(below.values()), inner)
            elif word not in _VALUES:
                self._note(below, inner)


def _anchors_of(schema: Mapping[str, Any], document: Any) -> list[str]:
    own = schema.get(_id_word(document))
    names = [schema.get(word) for word in _ANCHORS]
    if isinstance(own, str):
        names.append(own.partition("#")[2])  # the way of drafts up to 7
    return [name for name in names if isinstance(name, str) and name]


def _id_word(document: Any) -> str:
    draft = document.get("$schema") if isinstance(document, dict) else None
    return "id" if isinstance(draft, str) and ("draft-04" in draft or "draft-03" in draft) else "$id"


def _is_index(step: str) -> bool:
    return step.isascii() and step.isdigit() and (step == "0" or step[0] != "0") and len(step) < 10


def _joined(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError:  # one of them is no URI
        return uri

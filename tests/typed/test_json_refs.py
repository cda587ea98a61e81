"""Where a `$ref` leads: pointers, anchors, `$id` and names of references, as the library `referencing` says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from referencing import Registry, Resource, Specification
from referencing.jsonschema import DRAFT4, DRAFT7, DRAFT202012

from remote_fetch.errors import ConfigError
from remote_fetch.typed.json_types import json_node
from remote_fetch.typed.schema_text import SchemaText

N: dict[str, Any] = {"type": "integer"}
A, B = "http://h/a.json", "http://h/b.json"
FOURTH = "http://json-schema.org/draft-04/schema#"
TEXT = {"type": "string"}
NAMES = {"integer": "int64", "string": "string"}


def type_of(ref: Any, references: dict[str, Any], **words: Any) -> str:
    """The type of the property `x`, whose schema is `ref` or refers to it."""
    schema = {**words, "type": "object", "properties": {"x": {"$ref": ref} if isinstance(ref, str) else ref}}
    texts = tuple((name, SchemaText("JSON", json.dumps(each))) for name, each in references.items())
    return str(json_node(SchemaText("JSON", json.dumps(schema), texts)).arrow.field("x").type)


def as_peer(ref: str, references: dict[str, Any], draft: Specification[Any], **words: Any) -> str:
    top = Resource.from_contents(words, default_specification=draft)
    registry: Registry[Any] = Registry().with_resource(top.id() or "", top)
    for name, each in references.items():
        registry = registry.with_resource(name, Resource.from_contents(each, default_specification=draft))
    found = registry.resolver(top.id() or "").lookup(ref)
    while "$ref" in found.contents:
        found = found.resolver.lookup(found.contents["$ref"])
    return NAMES[found.contents["type"]]


@pytest.mark.parametrize(
    ("ref", "words", "references"),
    [
        ("#/more/1", {"more": [{"type": "string"}, N]}, {}),
        ("#/more/10", {"more": [{"type": "string"}] * 10 + [N]}, {}),
        ("#/$defs/", {"$defs": {"": N}}, {}),
        ("#/$defs//b", {"$defs": {"": {"b": N}, "b": {"type": "string"}}}, {}),
        ("#/", {"": N}, {}),
        ("#/$defs/a~1b~0c~01", {"$defs": {"a/b~c~1": N}}, {}),
        ("#/$defs/a%25%2F~1%C3%A9", {"$defs": {"a%": {"/é": N}}}, {}),
        ("#here", {"$defs": {"N": {"$anchor": "here", **N}}}, {}),
        (f"{A}#/$defs/N", {"$id": A, "$defs": {"N": N}}, {}),
        ("a.json#/$defs/N", {"$id": A, "$defs": {"N": N}}, {}),
        ("urn:x:a#/$defs/N", {"$id": "urn:x:a", "$defs": {"N": N}}, {}),
        ("low.json", {"$defs": {"N": {"$id": "low.json", **N}}}, {}),
        ("low.json#/$defs/M", {"$id": A, "$defs": {"N": {"$id": "low.json", "$defs": {"M": N}}}}, {}),
        ("n/low", {"$id": A, "$defs": {"N": {"$id": "n/low", "$ref": "m"}, "M": {"$id": "n/m", **N}}}, {}),
        ("#/$defs/N/l", {"$id": A, "$defs": {"N": {"$id": "n", "l": {"$ref": "#/m"}, "m": N}}, "m": TEXT}, {}),
        ("b.json", {}, {"b.json": N}),
        ("b.json#", {}, {"b.json": N}),
        (B, {"$id": A}, {"b.json": {"$id": B, **N}}),
        ("b.json", {"$id": A}, {B: N}),
        ("b.json#there", {}, {"b.json": {"$defs": {"N": {"$anchor": "there", **N}}}}),
        ("b.json", {"$id": A, "$defs": {"N": N}}, {B: {"$ref": "a.json#/$defs/N"}}),
        ("d/b.json", {}, {"d/b.json": {"$ref": "c.json"}, "d/c.json": N}),
        ("e.json", {"enum": [{"$id": "e.json", "type": "string"}]}, {"e.json": N}),
        ("e.json", {"$defs": {"enum": {"$id": "e.json", **N}}}, {}),
        ("#e", {"patternProperties": {"default": {"not": {"$anchor": "e", **N}}}}, {}),
        ("#r", {"$defs": {"R": {"$anchor": "r", "$ref": "#/$defs/N"}, "N": N}}, {}),
        ("#r", {"$id": A, "$defs": {"R": {"$anchor": "r", "$ref": "b.json"}, "N": {"$id": "b.json", **N}}}, {}),
        ("#/$defs/R/y", {"$defs": {"R": {"$id": "n/r", "y": {"$ref": "#"}, "$ref": "m"}, "M": {"$id": "n/m"} | N}}, {}),
        ("n/a.json#/$defs/N", {"$id": "n/a.json", "$defs": {"N": N}}, {}),
    ],
)  # fmt: skip
def test_a_ref_leads_where_the_peers_leads(ref: str, words: dict[str, Any], references: dict[str, Any]) -> None:
    assert type_of(ref, references, **words) == as_peer(ref, references, DRAFT202012, **words) == "int64"


@pytest.mark.parametrize(
    ("ref", "words", "draft"),
    [
        ("#here", {"definitions": {"N": {"$id": "#here", **N}}}, DRAFT7),
        ("#/definitions/N", {"$id": f"{A}#", "definitions": {"N": N}}, DRAFT7),
        ("low", {"$schema": FOURTH, "definitions": {"N": {"id": "low", **N}}}, DRAFT4),
    ],
)  # fmt: skip
def test_words_of_older_drafts(ref: str, words: dict[str, Any], draft: Specification[Any]) -> None:
    assert type_of(ref, {}, **words) == as_peer(ref, {}, draft, **words) == "int64"


def test_what_the_specification_does_not_have_and_schemas_do() -> None:
    """A pointer from the root of the document below an `$id`, and the last part of a name."""
    below = {"$id": "low.json", "type": "object", "properties": {"y": {"$ref": "#/$defs/N"}}}
    assert type_of(below, {}, **{"$id": A, "$defs": {"N": N}}) == "struct<y: int64>"
    assert type_of("b.json", {"http://other/b.json": N}, **{"$id": A}) == "int64"
    assert type_of("http://[", {"http://[": N}) == "int64"


@pytest.mark.parametrize("ref", ["#/more/2", "#/more/01", "#/more/-", "#/more/x", "#/none", "#none", "#/more/0/x"])
def test_a_ref_that_leads_nowhere(ref: str) -> None:
    with pytest.raises(ConfigError, match="which does not exist"):
        type_of(ref, {}, more=[True, N])

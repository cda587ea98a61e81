"""The registry alone: answers that are no registry's, and references. Reads with a registry are in test_columns.py."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from remote_fetch.errors import ConfigError, RegistryUnavailable, UnknownSchema
from remote_fetch.typed.outcome import Undecodable
from remote_fetch.typed.registry import Registry
from remote_fetch.typed.schema_text import SchemaRef
from tests.typed.registry_double import RegistryDouble, registry_double

INT = {"schema": '"int"'}


@pytest.fixture
def double() -> Iterator[RegistryDouble]:
    with registry_double() as running:
        yield running


def registry_of(double: RegistryDouble, wait_s: float = 5) -> Registry:
    return Registry({"url": double.url.replace("//", "//me:hush@")}, wait_s)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"status": "ok"}, {"schema": None}, {"schema": {"type": "int"}}, {**INT, "schemaType": 7},
        {**INT, "references": 5}, {**INT, "references": [5]}, {**INT, "references": [{}]},
        {**INT, "references": [{"name": "a", "subject": "b", "version": "1"}]}, {"error_code": 40403, "message": "a"},
    ],
)  # fmt: skip
def test_an_answer_without_a_schema_is_no_registrys(double: RegistryDouble, body: Any) -> None:
    """A proxy answers 200, and the client takes any object for a schema."""
    double.answer = lambda path: (200, body)  # type: ignore[method-assign]
    asks: tuple[Callable[[Registry], object], ...] = (
        lambda it: it.version("a", "latest"),
        lambda it: it.version("a", "1"),
        lambda it: it.written(SchemaRef(id=1)),
        lambda it: it.written(SchemaRef(guid="00000000-0000-0000-0000-000000000001")),
    )
    for ask in asks:
        with pytest.raises(RegistryUnavailable, match="answers, but not as a schema registry does") as failed:
            ask(registry_of(double))
        assert double.url in str(failed.value)
        assert "hush" not in str(failed.value)


@pytest.mark.parametrize("more", [{"id": "x"}, {"id": 1, "guid": 5}])
def test_a_version_has_a_number_for_an_id(double: RegistryDouble, more: Any) -> None:
    double.answer = lambda path: (200, {**INT, "subject": "a", "version": 1, **more})  # type: ignore[method-assign]
    with pytest.raises(RegistryUnavailable, match="not as a schema registry does"):
        registry_of(double).version("a", "1")


@pytest.mark.parametrize("body", [{}, {"status": "ok"}, 5, ["1"], [None], [1, "x"], [1.5]])
def test_the_versions_of_a_subject_are_numbers(double: RegistryDouble, body: Any) -> None:
    double.answer = lambda path: (200, body)  # type: ignore[method-assign]
    with pytest.raises(RegistryUnavailable, match="not as a schema registry does"):
        registry_of(double).learn("a", 5)


@pytest.mark.parametrize("body", [{"error_code": 404, "message": "HTTP 404 Not Found"}, "no such page"])
def test_a_registry_without_guids_knows_no_guid(double: RegistryDouble, body: Any) -> None:
    """Bytes that are none of Confluent's may begin as a GUID does. A 404 for an id is none of a registry's."""
    guid, unknown = SchemaRef(guid="00000000-0000-0000-0000-000000000001"), {"error_code": 40403, "message": "a"}
    double.answer = lambda path: (404, unknown if str(2**31 - 1) in path else body)  # type: ignore[method-assign]
    with pytest.raises(Undecodable, match="does not know the schema of GUID"):
        registry_of(double).written(guid)
    no_registry = pytest.raises(RegistryUnavailable, match="answers 404, not as a schema registry does")
    with no_registry:
        registry_of(double).written(SchemaRef(id=1))
    double.answer = lambda path: (404, body)  # type: ignore[method-assign]
    with no_registry:  # a proxy whose registry is away
        registry_of(double).written(guid)
    with pytest.raises(UnknownSchema, match=r"Or the path of schema\.registry\.url is wrong"):
        registry_of(double).version("a", "latest")


def test_a_proxys_answer_for_a_reference_says_nothing_of_the_value(double: RegistryDouble) -> None:
    double.register("part", INT["schema"])
    ref, answer = SchemaRef(id=double.register("top", INT["schema"], references=[("part", "part", 1)])), double.answer
    double.answer = (  # type: ignore[method-assign]
        lambda path: answer(path) if path.partition("?")[0] == f"/schemas/ids/{ref.id}" else (404, "no such page")
    )
    registry = registry_of(double)
    with pytest.raises(RegistryUnavailable, match="answers 404, not as a schema registry does"):
        registry.written(ref)
    double.answer = answer  # type: ignore[method-assign]
    assert [name for name, _ in registry.written(ref).references] == ["part"]


def test_a_reference_that_is_missing_is_named_by_its_subject(double: RegistryDouble) -> None:
    """A registry may answer 404 without a code of its own."""
    double.register("part", INT["schema"])
    double.register("top", INT["schema"], references=[("part", "part", 1)])
    answer = double.answer
    double.answer = (  # type: ignore[method-assign]
        lambda path: (404, "no such page") if path.startswith("/subjects/part/") else answer(path)
    )
    with pytest.raises(UnknownSchema, match="does not know the subject part, version 1"):
        registry_of(double).version("top", "1")


def test_a_registry_that_knows_no_subject_is_at_the_right_path(double: RegistryDouble) -> None:
    with pytest.raises(UnknownSchema, match=r"or key\.schema\.subject$"):
        registry_of(double).version("a", "latest")


def test_a_registry_that_does_not_answer_is_told_with_the_systems_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RegistryUnavailable, match="does not answer: Connection refused"):
        Registry({"url": f"http://127.0.0.1:{port}"}, 0.1).version("a", "latest")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_stays_away_is_told_by_its_last_answer(double: RegistryDouble, status: int) -> None:
    """The last request begins when the wait is over."""
    double.failures = [status] * 9
    with pytest.raises(RegistryUnavailable, match=f"answers {status}$"):
        registry_of(double, 0.1).version("a", "latest")


def test_references_are_counted_for_each_schema(double: RegistryDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject has many versions, and each may refer to new versions of others."""
    monkeypatch.setattr("remote_fetch.typed.registry._MOST_REFERENCES", 4)
    for number in range(1, 6):
        for name in "abcd":
            double.register(name, INT["schema"])
        double.register("top", INT["schema"], references=[(name, name, number) for name in "abcd"])
    registry = registry_of(double)
    assert [len(each.references) for each in registry.learn("top", 9)] == [4] * 5
    double.register("e", INT["schema"])
    double.register("wide", INT["schema"], references=[(name, name, 1) for name in "abcde"])
    assert len(registry.version("wide", "1").references) == 5, "four of them are known"
    with pytest.raises(ConfigError, match="references without end"):
        registry_of(double).version("wide", "1")
    for number in range(6):
        double.register(f"c{number}", INT["schema"], references=[("c", f"c{number - 1}", 1)] if number else ())
    with pytest.raises(ConfigError, match="references without end"):
        registry_of(double).version("c5", "1")


def test_a_version_whose_references_cannot_be_had_is_not_learned(double: RegistryDouble) -> None:
    """Its values alone do not decode, whether or not a driver asks for all versions."""
    double.register("loop", INT["schema"], references=[("loop", "loop", 1)])
    for references in ((), [("gone", "gone", 1)], [("loop", "loop", 1)], ()):
        double.register("a", INT["schema"], references=references)
    assert len(registry_of(double).learn("a", 9)) == 2
    with pytest.raises(UnknownSchema):
        registry_of(double).learn("no", 9)


def test_references_without_end_harm_the_values_of_their_schema(double: RegistryDouble) -> None:
    double.register("a", INT["schema"], references=[("b", "b", 1)])
    number = double.register("b", INT["schema"], references=[("a", "a", 1)])
    with pytest.raises(Undecodable, match="references without end"):
        registry_of(double).written(SchemaRef(id=number))
    with pytest.raises(ConfigError, match="references without end"):
        registry_of(double).version("b", "1")

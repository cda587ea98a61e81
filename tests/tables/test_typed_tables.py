"""Exports of typed values: struct columns in files and tables, schemas that grow, values that do not decode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from remote_fetch import export_topic
from remote_fetch.errors import ConfigError, RegistryDenied, UndecodableValue
from remote_fetch.observe import ignore
from remote_fetch.prepare.arguments import parse_isolation
from remote_fetch.tables import export_job
from remote_fetch.tables.export_plan import ExportBounds
from tests.cases import each_of
from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # noqa: PLC0414 - a fixture
from tests.tables.tables import FORMATS, files_of, opened, target
from tests.tables.typed_topic import FIRST, SECOND, TypedTopic, rows_of
from tests.typed.registry_double import RegistryDouble, registry_double

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SECRET = "hush-hush"


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        yield double


@pytest.fixture
def topic(tmp_path: Path, registry: RegistryDouble) -> TypedTopic:
    """Two orders of the first version, and a tombstone."""
    topic = TypedTopic(tmp_path / "tier", registry)
    topic.write(topic.register(FIRST), FIRST, [_first(1), _first(2)])
    topic.write_raw([None])
    return topic


@pytest.fixture(params=FORMATS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A table of each format that is not there yet."""
    return target(request.param, tmp_path / "lake")


def _holder(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Held", "fields": [{"name": "x", "type": kind}]}


def _first(number: int) -> dict[str, Any]:
    return {"id": number, "to": {"town": f"t{number}"}, "tags": {"n": number}}


def _second(number: int) -> dict[str, Any]:
    return {"note": f"n{number}", "id": number, "to": {"zip": "z", "town": "t"}, "tags": {}}


def _held(row: dict[str, Any]) -> dict[str, Any]:
    """A row as Arrow has it: maps are lists of pairs."""
    return {**row, "tags": list(row["tags"].items())}


def _as_second(row: dict[str, Any]) -> dict[str, Any]:
    return {"note": None, **_held(row), "to": {"zip": None, **row["to"]}}


def _values(where: dict[str, Any]) -> list[Any]:
    return [row["value"] for row in rows_of(where, ["offset", "value"])]


def test_files_have_structs(topic: TypedTopic, tmp_path: Path) -> None:
    topic.export({"to": str(tmp_path / "out")}, columns=["offset", "key", "value"], config={"key.format": "string"})
    found = ds.dataset(tmp_path / "out", format="parquet", exclude_invalid_files=True).to_table().to_pylist()
    expected = [_held(_first(1)), _held(_first(2)), None]
    assert found == [{"offset": at, "key": "k", "value": value} for at, value in enumerate(expected)]


def test_a_table_has_structs_and_takes_new_fields(where: dict[str, Any], topic: TypedTopic) -> None:
    topic.export(where)
    assert _values(where) == [_held(_first(1)), _held(_first(2)), None]
    topic.write(topic.register(SECOND), SECOND, [_second(3)])
    topic.write(1, FIRST, [_first(4)])  # an old producer is still there
    assert topic.export(where).ranges == {0: (3, 5)}
    expected = [_as_second(_first(1)), _as_second(_first(2)), None, _held(_second(3)), _as_second(_first(4))]
    assert _values(where) == expected
    topic.write(2, SECOND, [_second(5)])
    topic.export(where, config={"value.schema.version": "1"})  # a reader that stayed behind still fits
    assert _values(where)[5] == _as_second({name: _second(5)[name] for name in ("id", "tags")} | {"to": {"town": "t"}})
    assert _values(where)[:5] == expected


def test_a_field_of_another_type_is_refused(where: dict[str, Any], topic: TypedTopic) -> None:
    topic.export(where)
    other = {**FIRST, "fields": [{"name": "id", "type": "string"}, *FIRST["fields"][1:]]}
    topic.write(topic.register(other), other, [{**_first(3), "id": "x"}])
    with pytest.raises(ConfigError, match=r"'value' as .*, and not as|do not fit the table") as info:
        topic.export(where)
    assert "value.schema.version" in str(info.value.hint)
    assert len(_values(where)) == 3


@pytest.mark.parametrize("inside", [lambda kind: kind, _holder, lambda kind: _holder({"type": "array", "items": kind})])
def test_delta_refuses_names_that_differ_in_case_alone_before_anything_is_read(
    registry: RegistryDouble, tmp_path: Path, inside: Any
) -> None:
    def of(*names: str) -> dict[str, Any]:
        fields = [{"name": name, "type": "long", "default": 0} for name in names]
        made: dict[str, Any] = inside({"type": "record", "name": "R", "fields": fields})
        return made

    topic = TypedTopic(tmp_path / "tier", registry)
    where = target("delta", tmp_path / "lake")
    topic.register(of("id", "ID"))
    topic.write_raw([b"no value of the schema"])
    with pytest.raises(ConfigError, match=r"cannot have both 'value\.(.*\.)?id' and 'value\.(.*\.)?ID'"):
        topic.export(where)
    topic.register(of("id"))
    topic.export(where, config={"value.on.error": "null"})
    topic.register(of("id", "ID"))
    topic.write_raw([b"no value of the schema"])
    with pytest.raises(ConfigError, match="differ in more than case"):
        topic.export(where)


@pytest.mark.parametrize("inside", [lambda kind: kind, _holder])
def test_delta_refuses_a_name_that_differs_in_case_from_the_tables(
    registry: RegistryDouble, tmp_path: Path, inside: Any
) -> None:
    topic = TypedTopic(tmp_path / "tier", registry)
    where = target("delta", tmp_path / "lake")
    for name in ("id", "ID"):
        topic.register(inside({"type": "record", "name": "R", "fields": [{"name": name, "type": "long"}]}))
        topic.write_raw([None, b"no value of the schema"])
        if name == "id":
            topic.export(where, config={"value.on.error": "null"})
    with pytest.raises(ConfigError, match=r"'value\.(x\.)?id' and 'value\.(x\.)?ID'"):
        topic.export(where)


def test_new_fields_in_a_list(where: dict[str, Any], tmp_path: Path, registry: RegistryDouble) -> None:
    def listed(*names: str) -> dict[str, Any]:
        fields = [{"name": name, "type": ["null", "long"], "default": None} for name in names]
        inner = {"type": "record", "name": "I", "fields": fields}
        return {"type": "record", "name": "R", "fields": [{"name": "l", "type": {"type": "array", "items": inner}}]}

    topic = TypedTopic(tmp_path / "tier", registry)
    topic.write(topic.register(listed("a")), listed("a"), [{"l": [{"a": 1}]}])
    topic.export(where)
    topic.write(topic.register(listed("a", "b")), listed("a", "b"), [{"l": [{"a": 2, "b": 3}]}])
    if where["format"] == "delta":
        with pytest.raises(ConfigError, match=r"has the column 'value' as") as info:
            topic.export(where)
        assert "value.schema.version" in str(info.value.hint)
        topic.export(where, config={"value.schema.version": "1"})
        assert _values(where) == [{"l": [{"a": 1}]}, {"l": [{"a": 2}]}]
    else:
        topic.export(where)
        assert _values(where) == [{"l": [{"a": 1, "b": None}]}, {"l": [{"a": 2, "b": 3}]}]


def test_a_poisoned_value_commits_nothing(where: dict[str, Any], topic: TypedTopic) -> None:
    topic.export(where)
    topic.write(1, FIRST, [_first(3)])
    topic.write_raw([b"\0\0\0\0\1\xff\xff"])
    before, progress = files_of(where), opened(where).progress("orders")
    with pytest.raises(UndecodableValue, match=r"orders-0, offset 4.*") as info:
        topic.export(where)
    assert "id 1" in str(info.value)
    assert (info.value.topic, info.value.partition, info.value.offset) == ("orders", 0, 4)
    assert (files_of(where), opened(where).progress("orders")) == (before, progress)
    topic.export(where, config={"value.on.error": "quarantine"})
    found = rows_of(where, ["offset", "value", "value_raw", "value_error"])
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 4]
    assert found[3] == {"offset": 3, "value": _held(_first(3)), "value_raw": None, "value_error": None}
    assert (found[4]["value"], found[4]["value_raw"]) == (None, b"\0\0\0\0\1\xff\xff")
    assert found[4]["value_error"]
    assert [row["value_error"] for row in found[:4]] == [None] * 4


def test_a_new_table_stays_empty_if_its_first_value_is_broken(where: dict[str, Any], topic: TypedTopic) -> None:
    topic.write_raw([b"poison"])
    with pytest.raises(UndecodableValue):
        topic.export(where)
    assert (rows_of(where, ["offset"]), opened(where).progress("orders")) == ([], None)


def test_a_registry_that_refuses(where: dict[str, Any], topic: TypedTopic) -> None:
    topic.registry.failures = [401]
    user = {"schema.registry.basic.auth.user.info": f"reader:{SECRET}"}
    with pytest.raises(RegistryDenied) as info:
        topic.export(where, config=user)
    assert SECRET not in f"{info.value} {info.value!r}"
    topic.export(where)
    assert len(_values(where)) == 3


def test_no_secret_in_what_a_job_leaves(where: dict[str, Any], topic: TypedTopic, tmp_path: Path) -> None:
    """Plans, records, files and metadata, of a job that ended early and of one that is done."""
    host = topic.registry.url.removeprefix("http://")
    secret = {"schema.registry.url": f"http://reader:{SECRET}@{host}", "remote.storage.options.auto_mkdir": SECRET}
    topic.write_raw([b"poison"])
    with pytest.raises(UndecodableValue) as info:
        topic.export(where, config=secret)
    assert SECRET not in f"{info.value} {info.value!r} {info.value.hint}"
    assert any(name.name == "plan.json" for name in (tmp_path / "lake").rglob("_remote_fetch/*/*"))
    _has_no_secret(tmp_path)
    topic.export(where, config={**secret, "value.on.error": "null"})
    _has_no_secret(tmp_path)
    assert topic.registry.users[-1] is not None  # the secret was used


def _has_no_secret(folder: Path) -> None:
    files = [name for name in folder.rglob("*") if name.is_file()]
    assert files
    assert [name for name in files if SECRET.encode() in name.read_bytes()] == []


def test_what_names_a_job(topic: TypedTopic, tmp_path: Path) -> None:
    """Another way to decode is another job; another password is the same one. None is in a job's text."""

    def spec(**config: str) -> Any:
        level = parse_isolation("read_committed")
        settings = {**topic.config, **{name.replace("_", "."): text for name, text in config.items()}}
        bounds = ExportBounds("orders", "earliest", "tier", None, level, None, False, 1 << 20, settings)
        return export_job._spec(bounds, export_job.TableForm(None, None, (), "zstd", 1 << 20, 1 << 20), ignore)

    plain = spec()
    secret = spec(schema_registry_basic_auth_user_info=f"a:{SECRET}", sasl_password=SECRET)
    assert plain.fingerprint == secret.fingerprint
    assert SECRET not in f"{secret!r} {secret.reading!r} {secret.plan!r}"
    assert spec(value_on_error="null").fingerprint != plain.fingerprint
    doubled = {
        **FIRST,
        "fields": [*FIRST["fields"][:1], {**FIRST["fields"][1], "aliases": ["old"]}, FIRST["fields"][2]],
    }
    topic.register(doubled)
    assert spec().schema == plain.schema
    assert spec().fingerprint != plain.fingerprint


@each_of(
    "options",
    [["-s", "value=avro", "-r", "{url}"], ["-X", "value.format=avro-confluent", "-X", "schema.registry.url={url}"]],
)
def test_the_command(run: Run, topic: TypedTopic, tmp_path: Path, options: list[str]) -> None:
    where = target("delta", tmp_path / options[1])
    given = [text.replace("{url}", topic.registry.url) for text in options]
    command = ["export", "--url", str(topic.directory), "-t", "orders", "--format", "delta", "--to", where["to"], "-q"]
    outcome = run(*command, "--json", *given)
    assert (outcome.code, json.loads(outcome.stdout)["rows"]) == (0, 3)
    assert _values(where) == [_held(_first(1)), _held(_first(2)), None]


def test_the_command_packs_no_numbers(run: Run, topic: TypedTopic, tmp_path: Path) -> None:
    outcome = run("export", "--url", str(topic.directory), "-t", "orders", "--to", str(tmp_path / "a"), "-s", "value=i")
    assert outcome.code == 1
    assert "-s value=i: avro, key=avro or value=avro expected" in outcome.stderr


def test_a_directory_of_another_schema(topic: TypedTopic, tmp_path: Path) -> None:
    """A directory is one job: with another schema of the registry it is refused, and goes on with the old version."""
    where = {"to": str(tmp_path / "out")}
    topic.export(where)
    topic.register(SECOND)
    with pytest.raises(ConfigError, match="holds the job"):
        topic.export(where)


def test_a_config_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a configuration is a dict"):
        export_topic("orders", to=str(tmp_path / "a"), config=["value.format=json"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (lambda empty: empty, "value"),
        (_holder, "value.x"),
        (lambda empty: _holder(["null", {"type": "array", "items": ["null", empty]}]), "value.x"),
        (lambda empty: _holder({"type": "map", "values": empty}), "value.x.value"),
    ],
)
def test_a_record_without_fields_is_refused_before_anything_is_read(
    where: dict[str, Any], registry: RegistryDouble, tmp_path: Path, wrap: Any, name: str
) -> None:
    """Parquet files cannot have one."""
    topic = TypedTopic(tmp_path / "tier", registry)
    schema = wrap({"type": "record", "name": "Empty", "fields": []})
    topic.register(schema)
    topic.write_raw([None])
    with pytest.raises(ConfigError, match=f"{name} is a record without fields") as raised:
        topic.export(where)
    assert "value.schema.file" in str(raised.value)

"""Typed columns of batches: framings, versions, failures and what becomes of them, with a registry on loopback."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from remote_fetch.config import Config
from remote_fetch.decode.columns import schema_for
from remote_fetch.errors import ConfigError, RegistryDenied, RegistryUnavailable, UndecodableValue, UnknownSchema
from remote_fetch.typed import registry as module
from remote_fetch.typed.columns import TypedColumns
from remote_fetch.typed.framing import groups_of
from remote_fetch.typed.plan import plan_typed
from remote_fetch.typed.schema_text import SchemaRef
from tests.typed.avro_cases import encode
from tests.typed.registry_double import RegistryDouble, registry_double

V1: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
V2: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [*V1["fields"], {"name": "b", "type": "string", "default": "x"}],
}
COLUMNS = ("key", "value", "offset")


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        yield double


def config_of(registry: RegistryDouble | None = None, **more: str) -> Config:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    if registry is not None:
        settings = {"value.format": "avro-confluent", "schema.registry.url": registry.url, **settings}
    return Config.parse(settings)


def typed_of(config: Config, columns: Sequence[str] = COLUMNS, **how: Any) -> TypedColumns:
    plan = plan_typed(config, ["t"], **how)
    assert plan is not None
    return TypedColumns(pickle.loads(pickle.dumps(plan)), config, columns)


def batch_of(
    typed: TypedColumns, values: Sequence[bytes | None], headers: Sequence[Any] | None = None, **more: Any
) -> pa.RecordBatch:
    count = len(values)
    rows = {
        "key": [None] * count,
        "value": list(values),
        "topic": ["t"] * count,
        "partition": [3] * count,
        "offset": list(range(100, 100 + count)),
        "headers": headers or [[]] * count,
        **more,
    }
    schema = schema_for(typed.raw_columns)
    return pa.RecordBatch.from_pylist(
        [{name: rows[name][at] for name in schema.names} for at in range(count)], schema=schema
    )


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def test_rows_of_several_versions_are_columns_of_the_latest(registry: RegistryDouble) -> None:
    first, second = registry.register("t-value", V1), registry.register("t-value", V2)
    typed = typed_of(config_of(registry))
    values = [
        framed(first, encode(V1, {"a": 1})),
        framed(second, encode(V2, {"a": 2, "b": "y"})),
        None,
        framed(first, encode(V1, {"a": 3})),
    ]
    made = typed.apply(batch_of(typed, values))
    assert made.schema == typed.schema
    assert made.schema.names == list(COLUMNS)
    assert made.column("value").to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, None, {"a": 3, "b": "x"}]
    assert made.column("offset").to_pylist() == [100, 101, 102, 103]


def test_the_readers_schema_may_be_an_older_version_or_a_file(registry: RegistryDouble, tmp_path: Path) -> None:
    registry.register("t-value", V1)
    second = registry.register("t-value", V2)
    value = framed(second, encode(V2, {"a": 2, "b": "y"}))
    file = tmp_path / "reader.avsc"
    file.write_text(json.dumps({**V1, "fields": [{"name": "b", "type": "string"}]}))
    older = typed_of(config_of(registry, value_schema_version="1"))
    of_file = typed_of(config_of(registry, value_schema_file=str(file)))
    assert older.apply(batch_of(older, [value])).column("value").to_pylist() == [{"a": 2}]
    assert of_file.apply(batch_of(of_file, [value])).column("value").to_pylist() == [{"b": "y"}]


def test_a_schema_may_be_named_by_its_guid_and_in_a_header(registry: RegistryDouble) -> None:
    number = registry.register("t-value", V1)
    guid = b"\1" + registry.guid(number).bytes
    data = encode(V1, {"a": 7})
    typed = typed_of(config_of(registry), ("value",))
    header = [{"key": "x", "value": b""}, {"key": "__value_schema_id", "value": guid}]
    other = [{"key": "__key_schema_id", "value": b"\1"}]
    made = typed.apply(batch_of(typed, [data, guid + data, framed(number, data), None], [header, [], other, header]))
    assert made.column("value").to_pylist() == [{"a": 7}] * 3 + [None]
    assert made.schema.names == ["value"]
    assert typed.apply(batch_of(typed, [None], [header])).column("value").to_pylist() == [None]


def test_the_last_header_counts(registry: RegistryDouble) -> None:
    """As for Confluent's deserializers for Java and .NET. A null there stands for no header."""
    number = registry.register("t-value", V1)
    typed = typed_of(config_of(registry), ("value",))
    data, guids = encode(V1, {"a": 7}), (b"\1" + bytes(16), b"\1" + registry.guid(number).bytes, None)
    of_input, own, null = ({"key": "__value_schema_id", "value": each} for each in guids)
    made = typed.apply(batch_of(typed, [data, framed(number, data)], [[of_input, own], [of_input, null]]))
    assert made.column("value").to_pylist() == [{"a": 7}] * 2


RULE = {"name": "a secret", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}


@pytest.mark.parametrize("learns", [False, True])
def test_a_rule_that_encodes_bytes_makes_its_values_undecodable(registry: RegistryDouble, learns: bool) -> None:
    """Encrypted bytes may well decode: Avro has no checksum. Confluent's deserializers refuse a rule that they lack."""
    plain = registry.register("t-value", V1)
    encoded = registry.register("t-value", V1, rules={"encodingRules": [RULE]})
    disabled = registry.register("t-value", V1, rules={"encodingRules": [{**RULE, "disabled": True}]})
    typed = typed_of(config_of(registry, value_on_error="quarantine"), ("value",), learns=learns)
    made = typed.apply(batch_of(typed, [framed(number, b"\x0e") for number in (plain, encoded, disabled)]))
    assert made.column("value").to_pylist() == [{"a": 7}, None, {"a": 7}]
    assert made.column("value_error").to_pylist() == [
        None, "a rule of the registry has encoded the bytes, or encrypted them, and no rule is run", None,
    ]  # fmt: skip
    with SchemaRegistryClient({"url": registry.url}) as client, pytest.raises(SerializationError):
        AvroDeserializer(client)(framed(encoded, b"\x0e"), SerializationContext("t", MessageField.VALUE))


@pytest.mark.parametrize("kind", ["domainRules", "migrationRules"])
def test_rules_that_are_not_run_have_one_line(
    registry: RegistryDouble, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [registry.register("t-value", V1, rules={kind: [{**RULE, "mode": "WRITE"}]})]
    numbers += [registry.register("t-value", each, rules={kind: [RULE]}) for each in (V1, V2)]
    typed = typed_of(config_of(registry), ("value",))
    values = [framed(number, encode(V2, {"a": 7, "b": "x"})) for number in numbers]
    rows: list[Any] = typed.apply(batch_of(typed, values)).column("value").to_pylist()
    assert [row["a"] for row in rows] == [7, 7, 7]
    lines = [record.getMessage() for record in caplog.records if "rules" in record.getMessage()]
    assert len(lines) == 2  # one of the plan, and one of the read
    assert not any("a secret" in line for line in lines)


def test_a_decimal_alone_has_no_length_in_front(registry: RegistryDouble) -> None:
    """Kafka Connect writes such keys."""
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    number = registry.register("t-value", schema)
    typed = typed_of(config_of(registry), ("value",))
    values = [framed(number, data) for data in (b"\x30\x39", b"\x02\xff")]
    rows = typed.apply(batch_of(typed, values)).column("value").to_pylist()
    assert rows == [Decimal("123.45"), Decimal("7.67")]


@pytest.mark.parametrize("schema", ["bytes", {"type": "bytes"}])
@pytest.mark.parametrize("data", [b"\4abc", b"\4ab", b"plain", b""])
def test_a_value_of_the_schema_bytes_is_as_it_is(registry: RegistryDouble, schema: Any, data: bytes) -> None:
    """Confluent's serializers put no length in front of it. Inside another schema, bytes have one."""
    inside = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}
    number, other = registry.register("t-value", json.dumps(schema)), registry.register("u-value", inside)
    value = framed(number, data)
    found = typed_of(config_of(registry), ("value",))
    assert found.apply(batch_of(found, [value, None])).column("value").to_pylist() == [data, None]
    record = typed_of(config_of(registry, value_schema_subject="u-value"), ("value",))
    row = framed(other, encode(inside, {"b": data}))
    assert record.apply(batch_of(record, [row])).column("value").to_pylist() == [{"b": data}]
    if data:  # the peer takes no empty value
        with SchemaRegistryClient({"url": registry.url}) as client:
            assert AvroDeserializer(client)(value, SerializationContext("t", MessageField.VALUE)) == data


def test_an_id_has_four_bytes() -> None:
    (group,) = groups_of(pa.array([b"\0\1\2\3\4rest"]), None, "__value_schema_id", False)
    assert (group.ref, group.payloads.to_pylist()) == (SchemaRef(id=0x01020304), [b"rest"])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\3\0" + bytes(16) + b"\2", "the framing is that of AWS Glue's schema registry"),
        (b"\3\5" + bytes(16), "the framing is that of AWS Glue's schema registry"),
        (b"\3\5" + bytes(15), "the first byte is 3"),
        (b"\3\1" + bytes(16), "the first byte is 3"),
        (b'{"a": 1}', "the first byte is 123"),
        (b"\0\0\0\0", "too short for the framing"),
        (b"\1" + bytes(15), "too short for the framing"),
        (b"", "empty, without the framing"),
    ],
)
def test_a_framing_that_is_none_says_why(registry: RegistryDouble, value: bytes, reason: str) -> None:
    registry.register("t-value", V1)
    typed = typed_of(config_of(registry))
    with pytest.raises(UndecodableValue, match=reason):
        typed.apply(batch_of(typed, [value]))


def test_a_schema_whose_subject_was_deleted_is_read_with_its_references(registry: RegistryDouble) -> None:
    """As Confluent's deserializers do: the records are still there."""
    registry.register("inner", {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]})
    outer = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "i", "type": "In"}]}
    old = registry.register("old", outer, references=[("In", "inner", 1)])
    registry.register("t-value", V1)
    registry.deleted |= {"old", "inner"}
    typed = typed_of(config_of(registry))
    assert typed.apply(batch_of(typed, [framed(old, b"\2\4")])).column("value").to_pylist() == [{"a": 1}]


@pytest.mark.parametrize("learns", [False, True])
def test_an_id_is_of_the_context_that_the_subject_names(registry: RegistryDouble, learns: bool) -> None:
    """Each context has ids of its own, and references without a context are of that of their schema."""
    for context in ("", ":.lab:"):
        inner = {"type": "record", "name": "In", "fields": [{"name": f"x{len(context)}", "type": "int"}]}
        registry.register(f"{context}inner", inner)
    outer = {"type": "record", "name": "R", "fields": [{"name": "i", "type": "In"}]}
    defaulted = {**outer, "fields": [*outer["fields"], {"name": "b", "type": "int", "default": 9}]}
    first = registry.register(":.lab:t-value", outer, references=[("In", "inner", 1)])
    registry.register(":.lab:t-value", defaulted, references=[("In", ":.lab:inner", 1)])
    assert registry.register("t-key", V1) == first
    config = config_of(registry, key_format="avro-confluent", value_schema_subject=":.lab:t-value")
    typed = typed_of(config, learns=learns)
    values = [framed(first, b"\6"), framed(1000, b"")]
    made = typed.apply(batch_of(typed, values[:1], key=[framed(first, b"\4")]))
    assert made.select(["key", "value"]).to_pylist() == [{"key": {"a": 2}, "value": {"i": {"x6": 3}, "b": 9}}]
    with pytest.raises(UndecodableValue, match=r"does not know the schema of id 1000 in the context \.lab"):
        typed.apply(batch_of(typed, values, key=[None, None]))


def test_keys_and_values_are_typed_apart(registry: RegistryDouble) -> None:
    number = registry.register("t-key", V1)
    typed = typed_of(config_of(registry, key_format="avro-confluent", value_format="string"))
    made = typed.apply(batch_of(typed, [b"v"], key=[framed(number, encode(V1, {"a": 1}))]))
    assert made.to_pylist() == [{"key": {"a": 1}, "value": "v", "offset": 100}]


def test_what_a_driver_asked_for_its_tasks_do_not_ask_for(registry: RegistryDouble) -> None:
    registry.register("inner", {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]})
    outer = {"type": "record", "name": "R", "fields": [{"name": "i", "type": "In"}]}
    first = registry.register("t-value", outer, references=[("In", "inner", 1)])
    registry.register("t-value", V1)
    typed = typed_of(config_of(registry, value_schema_version="1"), learns=True)
    asked = list(registry.asked)
    made = typed.apply(batch_of(typed, [framed(first, b"\x0a")]))
    assert made.column("value").to_pylist() == [{"i": {"x": 5}}]
    assert registry.asked == asked


BAD = {
    "empty": b"",
    "short": b"\0\0\0",
    "other magic": b"\x07\0\0\0\1\2",
    "unknown id": framed(99, b"\2"),
    "cut": framed(1, b""),
}
REASONS = ("empty, without", "too short", "first byte is 7", "does not know the schema of id 99", "end of buffer")


@pytest.mark.parametrize(("value", "reason"), list(zip(BAD.values(), REASONS, strict=True)), ids=list(BAD))
def test_a_value_that_does_not_decode(registry: RegistryDouble, value: bytes, reason: str) -> None:
    number = registry.register("t-value", V1)
    values = [framed(number, b"\2"), value, None, framed(number, b"\4")]
    typed = typed_of(config_of(registry))
    with pytest.raises(UndecodableValue, match=reason) as failed:
        typed.apply(batch_of(typed, values))
    assert (failed.value.topic, failed.value.partition, failed.value.offset) == ("t", 3, 101)
    assert failed.value.column == "value"
    assert "t-3, offset 101" in str(failed.value)
    assert (failed.value.schema is not None) == (value[:1] == b"\0" and len(value) > 4)

    as_null = typed_of(config_of(registry, value_on_error="null"))
    assert as_null.apply(batch_of(as_null, values)).column("value").to_pylist() == [{"a": 1}, None, None, {"a": 2}]

    kept = typed_of(config_of(registry, value_on_error="quarantine"))
    made = kept.apply(batch_of(kept, values))
    assert made.schema.names == ["key", "value", "value_raw", "value_error", "offset"]
    assert made.column("value").to_pylist() == [{"a": 1}, None, None, {"a": 2}]
    assert made.column("value_raw").to_pylist() == [None, value, None, None]
    reasons: list[Any] = made.column("value_error").to_pylist()
    assert reason in reasons[1]
    assert reasons[0] is reasons[2] is reasons[3] is None


def test_ids_that_values_invent_are_not_kept_for_ever(
    registry: RegistryDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each id of a topic in another format may be one of its own."""
    monkeypatch.setattr("remote_fetch.typed.registry._MAX_UNKNOWN", 5)
    monkeypatch.setattr("remote_fetch.typed.columns._MAX_DECODERS", 5)
    number = registry.register("t-value", V1)
    typed = typed_of(config_of(registry, value_on_error="null"))
    values = [*(framed(100 + at, b"x") for at in range(12)), framed(number, b"\2"), framed(111, b"x")]
    assert typed.apply(batch_of(typed, values)).column("value").to_pylist() == [*[None] * 12, {"a": 1}, None]
    (column,) = typed._columns.values()
    assert column._registry is not None
    assert len(column._registry._unknown) <= 5
    assert len(column._decoders) <= 5
    assert caplog.text.count("does not know 6 schema ids") == 2


def test_a_batch_without_faults_has_empty_quarantine(registry: RegistryDouble) -> None:
    number = registry.register("t-value", V1)
    kept = typed_of(config_of(registry, value_on_error="quarantine"), ("value",))
    made = kept.apply(batch_of(kept, [framed(number, b"\2")]))
    assert made.to_pylist() == [{"value": {"a": 1}, "value_raw": None, "value_error": None}]
    assert kept.apply(batch_of(kept, [])).num_rows == 0


def test_a_writer_whose_schema_does_not_fit_fails_its_own_rows(registry: RegistryDouble) -> None:
    other = registry.register("other", {"type": "record", "name": "Other", "fields": []})
    text = registry.register("json", {"type": "object"}, "JSON")
    number = registry.register("t-value", V1)
    typed = typed_of(config_of(registry, value_on_error="quarantine"), ("value",))
    made = typed.apply(batch_of(typed, [framed(other, b""), framed(number, b"\2"), framed(text, b"{}")]))
    assert made.column("value").to_pylist() == [None, {"a": 1}, None]
    reasons: list[Any] = made.column("value_error").to_pylist()
    assert "record Other does not fit the reader's record R" in reasons[0]
    assert "one of JSON" in reasons[2]


def test_a_reason_with_half_a_surrogate_pair_is_kept(registry: RegistryDouble) -> None:
    other = registry.register("other", {"type": "record", "name": "O\ud800", "fields": []})
    registry.register("t-value", V1)
    typed = typed_of(config_of(registry, value_on_error="quarantine"), ("value",))
    reasons: list[Any] = typed.apply(batch_of(typed, [framed(other, b"")])).column("value_error").to_pylist()
    assert "record O\\ud800 does not fit" in reasons[0]


@pytest.mark.parametrize("text", ["{", "", {"type": "array", "items": "null"}])
def test_a_writers_schema_that_is_none_fails_its_own_rows(registry: RegistryDouble, text: object) -> None:
    bad = registry.register("other", text)
    number = registry.register("t-value", V1)
    typed = typed_of(config_of(registry, value_on_error="quarantine"), ("value",))
    made = typed.apply(batch_of(typed, [framed(bad, b"\2"), framed(number, b"\2")]))
    assert made.column("value").to_pylist() == [None, {"a": 1}]
    reasons: list[Any] = made.column("value_error").to_pylist()
    assert "the writer's schema cannot be used" in reasons[0]


def test_names_that_the_specification_does_not_have_are_read(registry: RegistryDouble) -> None:
    """Some writers check no names."""
    fields = [{"name": "n-x", "type": "int"}]
    number = registry.register("t-value", {"type": "record", "name": "R-1", "fields": fields})
    typed = typed_of(config_of(registry), ("value",))
    made = typed.apply(batch_of(typed, [framed(number, b"\2")]))
    assert made.column("value").to_pylist() == [{"n-x": 1}]


def test_a_registry_that_is_away_is_asked_again(registry: RegistryDouble) -> None:
    registry.register("t-value", V1)
    registry.failures += [503]
    typed_of(config_of(registry))
    assert len(registry.asked) == 2


def test_a_wait_for_a_registry_has_one_line(
    registry: RegistryDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the words of a wait for a broker, and to the same logger, which the command line prints."""
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    registry.register("t-value", V1)
    registry.failures += [503]
    typed_of(config_of(registry))
    assert caplog.messages == [], "a short wait is none"
    monkeypatch.setattr(module, "_SILENT_S", 0.0)
    registry.failures += [503, 503]
    typed_of(config_of(registry))
    assert caplog.messages == [f"waiting 60 s at most for the schema registry {registry.url}: it answers 503"]
    assert caplog.records[0].name == "remote_fetch.contact"


def test_a_registry_that_stays_away_is_an_error_in_time() -> None:
    with registry_double() as double:
        url = double.url
    settings = {"value.format": "avro-confluent", "schema.registry.url": url.replace("//", "//u:hush@")}
    config = Config.parse({**settings, "fetch.remote.broker.timeout.ms": "1"})
    with pytest.raises(RegistryUnavailable, match="does not answer") as failed:
        typed_of(config)
    assert "hush" not in str(failed.value)
    assert url.removeprefix("http://") in str(failed.value)


def test_urls_of_a_registry_as_messages_have_them() -> None:
    urls = "http://me:hush@[::1]:8081, https://host/path?token=hush"
    assert module.bare_url(urls) == "http://[::1]:8081,https://host/path"


@pytest.mark.parametrize(
    ("wait_s", "given", "expected"), [(60, {}, 10), (3, {}, 3), (0.001, {}, 1), (3, {"timeout": "20"}, 20)]
)
def test_a_request_to_a_registry_that_hangs_ends_with_the_wait(
    wait_s: float, given: dict[str, str], expected: float
) -> None:
    made = module._client(dict, {"url": "http://registry", **given}, wait_s)
    assert made["timeout"] == expected


@pytest.mark.parametrize("status", [401, 403])
def test_a_registry_that_refuses(registry: RegistryDouble, status: int, caplog: pytest.LogCaptureFixture) -> None:
    registry.register("t-value", V1)
    registry.failures += [status]
    url = registry.url.replace("//", "//me:hush@")
    caplog.set_level("DEBUG")
    with pytest.raises(RegistryDenied, match=str(status)) as failed:
        typed_of(config_of(registry, schema_registry_url=url))
    assert "hush" not in str(failed.value) + caplog.text
    assert "a secret" not in str(failed.value)
    assert len(registry.asked) == 1
    assert registry.users == ["Basic bWU6aHVzaA=="]


def test_something_else_that_answers_is_no_registry(registry: RegistryDouble) -> None:
    registry.failures += [418]
    with pytest.raises(RegistryUnavailable, match="not as a schema registry does"):
        typed_of(config_of(registry))


@pytest.mark.parametrize("body", [None, [], "welcome"])
def test_an_answer_of_something_else_is_not_called_silence(
    registry: RegistryDouble, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "answer", lambda path: (200, body))
    with pytest.raises(RegistryUnavailable, match="answers, but not as a schema registry does") as failed:
        typed_of(config_of(registry))
    assert str(failed.value).endswith("Check schema.registry.url")
    assert len(registry.asked) == 1


@pytest.mark.parametrize(
    "url",
    ["http://host:hush", "http://[::1", "http://me:hush/hush@host:1", "http://me:hu[sh@host", "http://me:1/hush@host",
     "http://me:hush@host:0", "http://me:hush@:8081", "http://host:1,"],
)  # fmt: skip
def test_a_url_that_is_none_is_told_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"schema\.registry\.url: no URL") as failed:
        typed_of(Config.parse({"value.format": "avro-confluent", "schema.registry.url": url}))
    assert "hush" not in str(failed.value)
    assert failed.value.hint is not None


@pytest.mark.parametrize(
    ("settings", "error", "reason"),
    [
        ({}, UnknownSchema, "the subject t-value, version latest"),
        ({"value.schema.subject": "other", "value.schema.version": "7"}, UnknownSchema, "subject other, version 7"),
        ({"value.schema.version": "new"}, ConfigError, "a number or latest"),
        ({"value.format": "json-confluent", "value.schema.subject": "other"}, ConfigError, "a schema of AVRO"),
        ({"schema.registry.max.retries": "x"}, ConfigError, "max.retries: give a number"),
        ({"schema.registry.url": "ftp://x"}, ConfigError, "Begin it with http"),
        ({"schema.registry.no.such": "x"}, ConfigError, "no.such"),
        ({"value.protobuf.message": "x"}, ConfigError, "value.format is avro-confluent"),
        ({"value.schema.file": "/no/such/file"}, ConfigError, "value.schema.file=/no/such/file"),
        ({"key.on.error": "null"}, ConfigError, "key.format is not"),
    ],
)
def test_settings_that_are_wrong(
    registry: RegistryDouble, settings: dict[str, str], error: type[Exception], reason: str
) -> None:
    registry.register("other", V1)
    with pytest.raises(error, match=reason):
        typed_of(config_of(registry, **settings))


@pytest.mark.parametrize(
    ("kind", "text", "said", "key"),
    [
        ("avro", '{"type":', r"value\.schema\.file: not an Avro", "schema.file"),
        ("json", '{"type":', r"value\.schema\.file: not a JSON", "schema.file"),
        ("avro-confluent", '{"type":', "the reader's schema of the value: not an", "schema.file"),
        ("protobuf-confluent", 'edition = "2023";\nmessage A {}', ".* of the value: .* an edition", "schema.file"),
        ("protobuf-confluent", 'syntax = "proto3";\nmessage A {}', ".* of the value: .* 'B'", "protobuf.message"),
    ],
)
def test_a_reader_schema_that_is_none_is_named(
    registry: RegistryDouble, tmp_path: Path, kind: str, text: str, said: str, key: str
) -> None:
    """A configuration may have two of them, of keys and of values."""
    file = tmp_path / "schema"
    file.write_text(text)
    settings = {"value_format": kind, "value_schema_file": str(file)}
    if kind == "protobuf-confluent":
        settings["value_protobuf_message"] = "B"
    with pytest.raises(ConfigError, match=f"^{said}") as raised:
        typed_of(config_of(registry, **settings))
    assert raised.value.key == f"value.{key}"


def test_formats_without_a_registry_need_their_schema() -> None:
    with pytest.raises(ConfigError, match="set value"):
        typed_of(Config.parse({"value.format": "avro"}))
    with pytest.raises(ConfigError, match=r"set schema\.registry\.url"):
        typed_of(Config.parse({"value.format": "avro-confluent"}))
    assert plan_typed(Config.parse({}), ["t"]) is None


def test_several_topics_need_one_schema(registry: RegistryDouble) -> None:
    registry.register("s", V1)
    with pytest.raises(ConfigError, match="several topics"):
        plan_typed(config_of(registry), ["a", "b"])
    assert plan_typed(config_of(registry, value_schema_subject="s"), None) is not None


def test_avro_without_a_registry(tmp_path: Path) -> None:
    file = tmp_path / "a.avsc"
    file.write_text(json.dumps(fastavro.parse_schema(V1), default=str))
    typed = typed_of(Config.parse({"value.format": "avro", "value.schema.file": str(file)}), ("value", "headers"))
    made = typed.apply(batch_of(typed, [b"\2", None, b"\4"]))
    assert made.column("value").to_pylist() == [{"a": 1}, None, {"a": 2}]
    with pytest.raises(UndecodableValue, match="does not decode as avro"):
        typed.apply(batch_of(typed, [b""]))


def test_strings() -> None:
    typed = typed_of(Config.parse({"value.format": "string"}), ("value",))
    assert typed.apply(batch_of(typed, ["é".encode(), None])).column("value").to_pylist() == ["é", None]
    with pytest.raises(UndecodableValue, match="not UTF-8"):
        typed.apply(batch_of(typed, [b"a", b"\xff"]))


def test_a_record_inside_itself_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "a.avsc"
    tree = {"type": "record", "name": "T", "fields": [{"name": "n", "type": ["null", "T"]}]}
    file.write_text(json.dumps(tree))
    typed = typed_of(Config.parse({"value.format": "avro", "value.schema.file": str(file)}), ("value",))
    for _ in range(2):
        typed.apply(batch_of(typed, [b"\2\2\0"]))
    assert [record.getMessage() for record in caplog.records] == [
        "value: T contains itself; the inner ones are columns of bytes"
    ]


def test_a_time_beyond_microseconds_harms_only_its_own_row(registry: RegistryDouble) -> None:
    schema = {**V1, "fields": [{"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}
    number = registry.register("t-value", schema)
    config = config_of(registry, value_on_error="quarantine")
    plan = plan_typed(config, ["t"])
    assert plan is not None
    typed = TypedColumns(plan, config, COLUMNS, is_portable=True)
    values = [framed(number, encode(schema, {"t": each})) for each in (1, 2**63 - 1, 2)]
    made = typed.apply(batch_of(typed, values))
    times: Any = made.column("value")
    assert times.is_null().to_pylist() == [False, True, False]
    assert times.field("t").cast(pa.int64()).to_pylist()[::2] == [1000, 2000]
    assert made.column("value_raw").to_pylist() == [None, values[1], None]
    assert "out of bounds timestamp" in str(made.column("value_error")[1])

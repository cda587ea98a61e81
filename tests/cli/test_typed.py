"""`cat` with typed keys and payloads, with a registry on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.cli.masked import masked
from remote_fetch.cli.typed import packs_of
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.cli.conftest import Run
from tests.typed.avro_cases import encode
from tests.typed.bucket import write_bucket
from tests.typed.registry_double import registry_double

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "int"},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "u", "type": ["null", "string", "long"]},
    ],
}
ROW = {"a": 1, "raw": b"\xff", "at": 5, "day": 1, "price": b"\x7b", "tags": {"é": [1.5, float("inf")]}, "u": 7}
PRINTED = {
    "a": 1,
    "raw": "\xff",
    "at": "1970-01-01T00:00:00.005000+00:00",
    "day": "1970-01-02",
    "price": "1.23",
    "tags": {"é": [1.5, "inf"]},
    "u": {"member0": None, "member1": 7},
}


@pytest.fixture
def arguments(tmp_path: Path) -> Iterator[list[str]]:
    """How to print three payloads: one in Avro, none, and one that is broken."""
    with registry_double() as registry:
        registry.register("orders-value", SCHEMA)
        write_bucket(tmp_path, [b"\0\0\0\0\1" + encode(SCHEMA, ROW), None, b"poison"], batch=1)
        yield ["cat", "--url", str(tmp_path), "-t", "orders", "-e", "-q", "-r", registry.url]


def test_payloads_are_json(run: Run, arguments: list[str]) -> None:
    outcome = run(*arguments, "-s", "value=avro", "-c", "2", "-X", "value.on.error=null")
    assert [json.loads(line) if line else None for line in outcome.lines] == [PRINTED, None]
    assert outcome.stdout.startswith(b'{"a":1,"raw":"\xc3\xbf"')


def test_a_record_as_json_has_the_payload_as_json(run: Run, arguments: list[str]) -> None:
    outcome = run(*arguments, "-s", "value=avro", "-J", "-X", "key.format=string", "-X", "value.on.error=null")
    rows = [json.loads(line) for line in outcome.lines]
    assert [row["payload"] for row in rows] == [PRINTED, None, None]
    assert {row["key"] for row in rows} == {"k"}


def test_a_time_that_python_does_not_have_is_a_number(run: Run, tmp_path: Path) -> None:
    at, day = SCHEMA["fields"][2:4]
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": day["type"]}]}
    far = [
        {"name": "l", "type": {"type": "array", "items": ["null", at["type"]]}},
        {"name": "m", "type": {"type": "map", "values": inner}},
    ]
    schema = {"type": "record", "name": "R", "fields": [at, day, *far]}
    rows = [
        {"at": 5, "day": 1, "l": [], "m": {}},
        {"at": 253_402_300_800_000, "day": 10_000_000, "l": [1, None, -(10**14)], "m": {"k": {"x": -1_000_000}}},
    ]
    with registry_double() as registry:
        registry.register("orders-value", schema)
        write_bucket(tmp_path, [b"\0\0\0\0\1" + encode(schema, row) for row in rows])
        outcome = run("cat", "--url", str(tmp_path), "-t", "orders", "-e", "-q", "-r", registry.url, "-s", "value=avro")
    near = {"at": "1970-01-01T00:00:00.005000+00:00", "day": "1970-01-02", "l": [], "m": {}}
    times = ["1970-01-01T00:00:00.001000+00:00", None, -(10**17)]
    far_row = {"at": 253_402_300_800_000_000, "day": 10_000_000, "l": times, "m": {"k": {"x": -1_000_000}}}
    assert [json.loads(line) for line in outcome.lines] == [near, far_row], outcome.stderr


def test_a_broken_payload_ends_the_output_and_says_where(run: Run, arguments: list[str]) -> None:
    outcome = run(*arguments, "-s", "value=avro", "-f", "%k %o\\n", "-X", "key.format=string")
    assert outcome.code == 1
    assert "first byte is 112" in outcome.stderr
    assert "orders-0, offset 2" in outcome.stderr


@pytest.mark.parametrize("more", [(), ("-J",), ("-c", "5")])
def test_the_records_before_a_broken_payload_are_printed(run: Run, tmp_path: Path, more: tuple[str, ...]) -> None:
    """They lie in the same Arrow batch. The broken key of a later record is found first."""
    values = [b'{"a":0}', b'{"a":1}', b'{"a":2}', b"?", b"?"]
    keys = [b'{"a":7}', None, b'{"a":7}', b'{"a":7}', b"?"]
    log = LogBuilder("orders")
    log.append_batch([Record(at, key=keys[at], value=value) for at, value in enumerate(values)])
    log.roll()
    write_kafka_local(tmp_path, log.segments())
    (tmp_path / "s.json").write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    typed = {"value.format": "json", "key.format": "json"}
    typed |= {f"{name}.schema.file": str(tmp_path / "s.json") for name in ("key", "value")}
    formats = [word for name, value in typed.items() for word in ("-X", f"{name}={value}")]
    outcome = run("cat", "--url", str(tmp_path), "-t", "orders", "-e", "-q", *formats, *more)
    shown = [json.loads(line) for line in outcome.lines]
    assert [row["payload"] if "-J" in more else row for row in shown] == [{"a": 0}, {"a": 1}, {"a": 2}]
    assert outcome.code == 1
    assert "orders-0, offset 3" in outcome.stderr


def test_avro_beside_packed_numbers() -> None:
    assert packs_of(["avro"]) == ({"key.format": "avro-confluent", "value.format": "avro-confluent"}, [])
    assert packs_of(["value=avro", "key=i"]) == ({"value.format": "avro-confluent"}, ["key=i"])
    assert packs_of(["value=avro", "i"]) == ({}, ["i"])


def test_the_credentials_of_a_registry_are_masked() -> None:
    assert masked("schema.registry.basic.auth.user.info", "me:hush") == "***"
    assert masked("schema.registry.url", "http://me:hush@host:1/x") == "http://host:1/x"
    assert masked("value.schema.file", "/a.avsc") == "/a.avsc"


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        ("value.a == 1 and value.price > 1.2", [0]),
        ("value.at < '1970-01-02' and key == 'k'", [0]),
        ("value is None", [1, 2]),
        ("value.a > 1", []),
    ],
)
def test_grep_has_conditions_on_typed_fields(run: Run, arguments: list[str], where: str, offsets: list[int]) -> None:
    _, *rest = arguments
    rest.remove("-e")
    typed = ("-s", "value=avro", "-X", "key.format=string", "-X", "value.on.error=null")
    outcome = run("grep", *rest, *typed, "-f", "%o\\n", "--where", where)
    assert [int(line) for line in outcome.lines] == offsets, outcome.stderr


def test_keys_of_a_protobuf_map_are_the_names_that_json_has(run: Run, tmp_path: Path) -> None:
    schema = 'syntax = "proto3"; message M { map<bool, int32> b = 1; map<uint64, int32> n = 2; }'
    with registry_double() as registry:
        front = b"\0" + registry.register("orders-value", schema, "PROTOBUF").to_bytes(4, "big") + b"\0"
        write_bucket(tmp_path, [front + b"\x0a\x04\x08\x01\x10\x05\x12\x04\x08\x07\x10\x06"])
        typed = ["-X", "value.format=protobuf-confluent", "-r", registry.url]
        outcome = run("cat", "--url", str(tmp_path), "-t", "orders", "-q", *typed)
    assert json.loads(outcome.stdout) == {"b": {"true": 5}, "n": {"7": 6}}

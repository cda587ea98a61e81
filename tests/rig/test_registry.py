"""Typed columns of topics on a real broker by a real registry, equal field by field to Confluent's deserializers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from remote_fetch import read_arrow
from remote_fetch.errors import UndecodableValue, UnknownSchema
from remote_fetch.typed.avro_schema import AvroSchema
from remote_fetch.typed.schema_text import SchemaText
from tests.rig import topics
from tests.rig.registry import apicurio
from tests.rig.rig import Rig
from tests.typed.avro_cases import as_fastavro
from tests.typed.test_protobuf import SCHEMA as PROTO
from tests.typed.test_protobuf import as_row, message_class

pytestmark = [pytest.mark.scheduled, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
VERSIONS = 20
EACH = 15
NUMBERS = ("int", "long", "double")


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with apicurio() as url:
        yield url


@pytest.fixture
def client(registry: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry}) as made:
        yield made


def version(number: int) -> dict[str, Any]:
    """A schema of its time: a field more in each version, a number that grows wider, a name that changes once."""
    item: dict[str, Any] = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
    if number >= 5:
        item["fields"].append({"name": "tags", "type": {"type": "map", "values": "long"}, "default": {}})
    place = {"name": "town", "type": ["null", "string"], "default": None}
    if number >= 10:
        place = {**place, "name": "city", "aliases": ["town"]}
    symbols = ["NEW", "PAID"] + (["SENT"] if number >= 8 else [])
    fields = [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": NUMBERS[min(number // 7, 2)]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": symbols}},
        {"name": "items", "type": {"type": "array", "items": item}},
        place,
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "either", "type": ["null", "string", "Item"] if number >= 12 else ["null", "string"], "default": None},
    ]
    fields += [{"name": f"f{each}", "type": ["null", "int"], "default": None} for each in range(number)]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}


def row(number: int, at: int) -> dict[str, Any]:
    item: dict[str, Any] = {"sku": f"s{at}"}
    if number >= 5:
        item["tags"] = {"a": at}
    either: Any = (None, f"e{at}", ("shop.Item", item))[at % (3 if number >= 12 else 2)]
    return {
        "id": number * 1000 + at,
        "amount": at,
        "state": "NEW" if at % 2 else ("SENT" if number >= 8 else "PAID"),
        "items": [item] * (at % 3),
        "city" if number >= 10 else "town": None if at % 2 else f"t{at}",
        "at": 1_700_000_000_000_000 + at,
        "either": either,
        **{f"f{each}": each for each in range(number)},
    }


def send(rig: Rig, topic: str, values: Sequence[bytes]) -> None:
    topics.create_topic(rig, topic)
    failures: list[Any] = []

    def note(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    # A batch has to fit into a segment of 8 KiB.
    producer = Producer({"bootstrap.servers": rig.bootstrap, "linger.ms": 5, "batch.size": 4000})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=note)
    assert producer.flush(60) == 0
    assert failures == []
    topics.wait_tiered(rig, topic)


def read(rig: Rig, topic: str, kind: str | None = None, **more: str) -> list[Any]:
    config = {"bootstrap.servers": rig.bootstrap, "remote.storage.url": str(rig.remote), **more}
    table = read_arrow(topic, columns=["offset", "value"], value_format=kind, config=config).read_all()
    assert table.column("offset").to_pylist() == list(range(table.num_rows))
    return table.column("value").to_pylist()


def run_example(name: str, rig: Rig, *more: str) -> list[str]:
    """The lines that an example prints."""
    command = [sys.executable, str(ROOT / "examples" / name), rig.bootstrap, str(rig.remote), *more]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_twenty_versions_of_avro(
    rig_43: Rig, new_topic: Callable[[str], str], registry: str, client: SchemaRegistryClient
) -> None:
    topic = new_topic("avro")
    context = SerializationContext(topic, MessageField.VALUE)
    values: list[bytes] = []
    for number in range(VERSIONS):
        text = json.dumps(version(number))
        client.register_schema(f"{topic}-value", Schema(text, "AVRO"))
        to_bytes = AvroSerializer(client, text, conf={"auto.register.schemas": False})
        values += [to_bytes(row(number, at), context) for at in range(EACH)]
    send(rig_43, topic, values)

    latest = SchemaText("AVRO", json.dumps(version(VERSIONS - 1)))
    peer = AvroDeserializer(client, latest.text)
    expected = [peer(value, context) for value in read(rig_43, topic)]
    schema = AvroSchema.parse(latest)
    url = {"schema.registry.url": registry}
    found = [as_fastavro(schema, schema.node, value) for value in read(rig_43, topic, "avro-confluent", **url)]
    assert (len(expected), len(found)) == (VERSIONS * EACH, VERSIONS * EACH)
    assert found == expected
    older = read(rig_43, topic, "avro-confluent", **url, **{"value.schema.version": "15", "value.on.error": "null"})
    assert [value and value["id"] for value in older] == [value["id"] for value in expected]

    printed = run_example("09_typed_values.py", rig_43, topic, registry)
    assert printed[1:] == ["('NEW', 140, 19013, 0)", "('PAID', 64, 7014, 0)", "('SENT', 96, 19014, 0)"]

    with pytest.raises(UnknownSchema, match="version 99"):
        read(rig_43, topic, "avro-confluent", **url, **{"value.schema.version": "99"})


def test_protobuf_with_nested_and_imported_messages(
    rig_43: Rig, new_topic: Callable[[str], str], registry: str, client: SchemaRegistryClient
) -> None:
    topic = new_topic("proto")
    order = message_class(PROTO, "shop.Order")
    context = SerializationContext(topic, MessageField.VALUE)
    to_bytes = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    made = [
        order(id=at, items=[{"name": f"i{at}", "count": at}] * (at % 3), place={"x": at / 2}, tags={"a": at})
        for at in range(100)
    ]
    send(rig_43, topic, [to_bytes(message, context) for message in made])
    peer = ProtobufDeserializer(order, {"use.deprecated.format": False})
    expected = [as_row(peer(value, context)) for value in read(rig_43, topic)]
    found = read(rig_43, topic, "protobuf-confluent", **{"schema.registry.url": registry})
    assert [{**value, "tags": dict(value["tags"])} for value in found] == expected
    printed = run_example("12_protobuf.py", rig_43, topic, registry)
    assert printed[1:] == ["(0, 30, 99)", "(1, 30, 97)", "(2, 30, 98)"]


def test_json_schema_and_a_poisoned_value(
    rig_43: Rig, new_topic: Callable[[str], str], registry: str, client: SchemaRegistryClient
) -> None:
    topic = new_topic("json")
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "items": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        },
        "required": ["id", "items"],
    }
    context = SerializationContext(topic, MessageField.VALUE)
    to_bytes = JSONSerializer(json.dumps(schema), client, lambda value, _: value)
    values = [to_bytes({"id": at, "items": [{"sku": f"s{at}"}] * (at % 3)}, context) for at in range(100)]
    send(rig_43, topic, [*values, values[0][:5] + b'{"id": "poison"}'])
    peer = JSONDeserializer(json.dumps(schema), schema_registry_client=client)
    expected = [peer(value, context) for value in values]
    url = {"schema.registry.url": registry}
    found = read(rig_43, topic, "json-confluent", **url, **{"value.on.error": "null"})
    assert found == [*expected, None]
    with pytest.raises(UndecodableValue, match=rf"{topic}-0, offset 100"):
        read(rig_43, topic, "json-confluent", **url)


def test_json_without_a_registry(rig_43: Rig, new_topic: Callable[[str], str], tmp_path: Path) -> None:
    topic, schema = new_topic("plain"), tmp_path / "order.json"
    items = {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
    schema.write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "items": items}}))
    values = [json.dumps({"id": at, "items": [{"sku": f"s{at}"}] * (at % 3)}).encode() for at in range(100)]
    send(rig_43, topic, [*values, b'{"id": "poison"}'])
    printed = run_example("13_json.py", rig_43, topic, str(schema), str(tmp_path / "files"))
    assert printed[:2] == ["101 rows", "(100, 99, 99)"]
    assert printed[2].startswith('(100, b\'{"id": "poison"}\', \'$.id: ')

"""read_arrow with typed columns, from a bucket on the disk and a registry on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import remote_fetch
from remote_fetch.errors import UndecodableValue
from tests.typed.avro_cases import encode
from tests.typed.bucket import write_bucket
from tests.typed.registry_double import registry_double

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


def test_a_topic_in_avro(tmp_path: Path) -> None:
    with registry_double() as registry:
        number = registry.register("orders-value", SCHEMA)
        front = b"\0" + number.to_bytes(4, "big")
        rows = [{"id": at, "note": None if at % 2 else f"n{at}"} for at in range(50)]
        write_bucket(tmp_path / "tier", [*(front + encode(SCHEMA, row) for row in rows), None])
        config = {"remote.storage.url": str(tmp_path / "tier"), "schema.registry.url": registry.url}
        table = remote_fetch.read_arrow(
            "orders", columns=["offset", "value"], value_format="avro-confluent", key_format="string", config=config
        ).read_all()
    assert table.schema.names == ["offset", "value"]
    assert table.column("value").to_pylist() == [*rows, None]
    assert table.column("offset").to_pylist() == list(range(51))


def test_a_poisoned_value_in_the_middle(tmp_path: Path) -> None:
    write_bucket(tmp_path / "tier", [b'{"a": 1}', b'{"a": "x"}', b'{"a": 3}'])
    schema = tmp_path / "a.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    config = {"remote.storage.url": str(tmp_path / "tier"), "value.schema.file": str(schema), "value.format": "json"}
    with pytest.raises(UndecodableValue, match=r"orders-0, offset 1"):
        remote_fetch.read_arrow("orders", config=config).read_all()
    kept = remote_fetch.read_arrow("orders", columns=["value"], config={**config, "value.on.error": "quarantine"})
    assert kept.read_all().to_pylist() == [
        {"value": {"a": 1}, "value_raw": None, "value_error": None},
        {"value": None, "value_raw": b'{"a": "x"}', "value_error": "$.a: str where the schema has an integer"},
        {"value": {"a": 3}, "value_raw": None, "value_error": None},
    ]

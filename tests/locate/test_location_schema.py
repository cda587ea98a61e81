"""The schema of KIP-1254's fields: the one of the package, others, and what is refused."""

from __future__ import annotations

import copy
import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.locate.location_schema import LocationSchema, load_schema
from tests.cases import each_of

OWN = json.loads((importlib.resources.files("remote_fetch.locate") / "location_schema.json").read_text())
REQUEST: dict[str, Any] = {
    "name": "FetchRequest",
    "type": "request",
    "validVersions": "4-18",
    "fields": [
        {"name": "MaxWaitMs", "type": "int32", "versions": "0+"},
        {
            "name": "Topics",
            "type": "[]FetchTopic",
            "versions": "0+",
            "fields": [
                {
                    "name": "Partitions",
                    "type": "[]FetchPartition",
                    "versions": "0+",
                    "fields": [
                        {"name": "Partition", "type": "int32", "versions": "0+"},
                        {"name": "FetchOffset", "type": "int64", "versions": "0+", "tag": 1},
                    ],
                }
            ],
        },
    ],
}
"""A part of Kafka's own definition."""


def parse(change: Callable[[dict[str, Any]], Any]) -> LocationSchema:
    given = copy.deepcopy(OWN)
    change(given)
    return LocationSchema.parse(json.dumps(given).encode(), "mine.json")


def test_the_package_has_the_names_of_the_kip() -> None:
    schema = load_schema(None)
    assert (schema.fetch_version, schema.storage_formats) == (19, ("ApacheKafkaV1",))
    assert [field.name for field in schema.request] == [
        "RemoteLogSegmentLocationRequested",
        "SupportedStorageFormatVersions",
    ]
    assert [field.name for field in schema.response][:2] == ["RemoteLogSegmentId", "RemoteLogSegmentCustomMetadata"]
    located = next(field for field in schema.response if field.role == "segment_id")
    assert (located.tag, located.struct) == (3, "PartitionData")
    short = parse(lambda given: given["response"].pop())
    assert "size_bytes" not in {field.role for field in short.response}


def test_tagged_fields_and_positions() -> None:
    schema = parse(lambda given: given["request"][0].pop("tag") and given["request"][0].update(after="Partition"))
    found = schema.apply("request", copy.deepcopy(REQUEST))
    assert found["validVersions"] == "0-19"
    assert found["fields"][-1] == {
        "name": "SupportedStorageFormatVersions",
        "type": "[]string",
        "versions": "19+",
        "ignorable": True,
        "taggedVersions": "19+",
        "tag": 2,
    }
    partition = found["fields"][1]["fields"][0]["fields"]
    assert [field["name"] for field in partition] == ["Partition", "RemoteLogSegmentLocationRequested", "FetchOffset"]
    assert "tag" not in partition[1]
    last = parse(lambda given: given["request"][0].pop("tag")).apply("request", copy.deepcopy(REQUEST))
    assert last["fields"][1]["fields"][0]["fields"][-1]["name"] == "RemoteLogSegmentLocationRequested"


@each_of(
    ("change", "message"),
    [
        (lambda given: given.update(fetchVersion=12), "fetchVersion is 12: give a number from 13 on"),
        (lambda given: given.update(fetchVersion=True), "fetchVersion is True"),
        (lambda given: given.update(other=1), "'other' is not a key of a schema"),
        (lambda given: given.update(supportedStorageFormatVersions=[]), "supportedStorageFormatVersions is []"),
        (lambda given: given.update(request={}), "request has to be a list of fields"),
        (lambda given: given["response"].pop(0), "response has no field of the role segment_id"),
        (lambda given: given["response"].append(given["response"][0]), "response has two fields of one role"),
        (lambda given: given["response"].append(5), "response[5]: a field has role, struct and name"),
        (lambda given: given["request"][0].update(role="segment_id"), "request[0]: role 'segment_id': choose one of"),
        (lambda given: given["request"][0].update(struct="PartitionData"), "struct 'PartitionData': choose one of"),
        (lambda given: given["request"][0].update(role=[]), "request[0]: role []: choose one of"),
        (lambda given: given["request"][0].update(struct={}), "request[0]: struct {}: choose one of"),
        (lambda given: given["request"][0].update(name="no name"), "name 'no name' is not a field's name"),
        (lambda given: given["request"][0].update(tag=-1), "tag -1 is not a number from 0 on"),
        (lambda given: given["request"][0].update(after="Partition"), "for a field without tag"),
        (lambda given: given["request"][0].update(kind="bool"), "'kind' is not a key of a field"),
    ],
)
def test_a_file_that_breaks_a_rule(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(change)
    assert message in str(raised.value)
    assert str(raised.value).startswith("remote.locator.schema.file: mine.json")
    assert raised.value.key == "remote.locator.schema.file"


@each_of(
    ("change", "message"),
    [
        (lambda given: given["request"][0].update(struct="FetchTopic", tag=None, after="No"), "stand behind No, which"),
        (lambda given: given["request"][0].update(tag=1), "tag 1 of FetchPartition is taken already"),
        (
            lambda given: given["request"][0].update(name="FetchOffset"),
            "FetchPartition has a field FetchOffset already",
        ),
    ],
)
def test_a_schema_that_does_not_fit_kafkas_own(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(change).apply("request", copy.deepcopy(REQUEST))


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    with pytest.raises(ConfigError, match="No such file"):
        load_schema(str(file))
    nested = b"[" * 30_000 + b"]" * 30_000
    for data, message in (
        (b"{", "is not JSON"), (b"\xff", "is not JSON"), (nested, "is not JSON"), (b"[]", "is not a JSON object"),
    ):  # fmt: skip
        file.write_bytes(data)
        with pytest.raises(ConfigError, match=message):
            load_schema(str(file))
    file.write_bytes(b" " * (64 << 10) + b"{}")
    with pytest.raises(ConfigError, match="larger than 65536 bytes"):
        load_schema(str(file))
    file.write_text(json.dumps(OWN | {"fetchVersion": 21}))
    assert load_schema(str(file)).fetch_version == 21

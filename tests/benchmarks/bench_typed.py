"""Typed columns beside Confluent's deserializers, and a read with typed values beside the read of their bytes.

Rules of the file:

- A record has six fields: long, string, double, int, boolean and a nullable string.
- Both sides are given the same framed values and ask the same registry, on loopback, before the clock runs.
- That both give equal rows is checked before anything is measured.
- All take turns in the same run. The result is the least CPU time of several rounds.
- `--write` puts the tables into docs/performance/.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from remote_fetch import read_arrow
from remote_fetch.config import Config
from remote_fetch.decode.columns import schema_for
from remote_fetch.typed.columns import TypedColumns
from remote_fetch.typed.plan import plan_typed
from remote_fetch.typed.protobuf import _compiled
from remote_fetch.typed.schema_text import SchemaText
from tests.benchmarks.document import machine, write
from tests.typed.bucket import write_bucket
from tests.typed.registry_double import RegistryDouble, registry_double

FIELDS: list[tuple[str, Any, str, Any]] = [
    ("id", "long", "int64", "integer"),
    ("name", "string", "string", "string"),
    ("price", "double", "double", "number"),
    ("count", "int", "int32", "integer"),
    ("ok", "boolean", "bool", "boolean"),
    ("note", ["null", "string"], "optional string", ["string", "null"]),
]
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": name, "type": avro} for name, avro, _, _ in FIELDS],
}
OLDER: dict[str, Any] = {
    **AVRO,
    "fields": [*AVRO["fields"][:3], {"name": "gone", "type": "long"}, *AVRO["fields"][4:]],
}
LATER: dict[str, Any] = {
    **AVRO,
    "fields": [{**field, "default": 0} if field["name"] == "count" else field for field in AVRO["fields"]],
}
WITH_BYTES: dict[str, Any] = {
    **AVRO,
    "fields": [*AVRO["fields"][:2], {"name": "price", "type": "bytes"}, *AVRO["fields"][3:]],
}
_PROTO_FIELDS = "".join(f"  {kind} {name} = {number};\n" for number, (name, _, kind, _) in enumerate(FIELDS, 1))
PROTO = f'syntax = "proto3";\nmessage Order {{\n{_PROTO_FIELDS}}}\n'
JSON_SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {name: {"type": kind} for name, _, _, kind in FIELDS},
}
BATCH_ROWS = 10_000
CODECS = {"none": 0, "zstd": 4}
HEAD = "| values | records | ours | Confluent's | Confluent's / ours |\n|---|---|---|---|---|"
READ_HEAD = (
    "| records | codec | bytes | typed | typed / bytes | speed of bytes that is left |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Case:
    """Framed values, the typed columns that decode them, and the peer's call for one value."""

    name: str
    values: Sequence[bytes]
    typed: TypedColumns
    peer: Callable[[bytes], Any]


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": at,
            "name": f"name-{at}",
            "price": at / 4,
            "count": at % 100,
            "ok": at % 2 == 0,
            "note": None if at % 3 else "n",
        }
        for at in range(count)
    ]


def avro_values(schema: Any, number: int, made: Sequence[Mapping[str, Any]]) -> list[bytes]:
    parsed, values = fastavro.parse_schema(schema), []
    for row in made:
        data = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
        data.seek(5)
        fastavro.schemaless_writer(data, parsed, row)
        values.append(data.getvalue())
    return values


def typed_for(registry: RegistryDouble, subject: str, kind: str) -> TypedColumns:
    config = Config.parse({"value.format": kind, "value.schema.subject": subject, "schema.registry.url": registry.url})
    plan = plan_typed(config, ["t"])
    assert plan is not None
    return TypedColumns(plan, config, ("value",))


def cases(registry: RegistryDouble, count: int) -> list[Case]:
    """All cases, for `count` records."""
    made = rows(count)
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("t", MessageField.VALUE)

    def avro(name: str, writer: Any, reader: Any, values: Sequence[Mapping[str, Any]]) -> Case:
        subject = f"{name}-{count}"
        number = registry.register(subject, writer)
        registry.register(subject, reader)
        peer = AvroDeserializer(client, json.dumps(reader))
        return Case(
            name, avro_values(writer, number, values), typed_for(registry, subject, "avro-confluent"),
            lambda value: peer(value, context),
        )  # fmt: skip

    proto_id = registry.register(f"proto-{count}", PROTO, "PROTOBUF")
    message = GetMessageClass(_compiled(SchemaText("PROTOBUF", PROTO)).message_types_by_name["Order"])
    protos = [b"\0" + proto_id.to_bytes(4, "big") + b"\0" + message(**row).SerializeToString() for row in made]
    of_proto = ProtobufDeserializer(message, {"use.deprecated.format": False})
    json_id = registry.register(f"json-{count}", JSON_SCHEMA, "JSON")
    jsons = [b"\0" + json_id.to_bytes(4, "big") + json.dumps(row).encode() for row in made]
    of_json = JSONDeserializer(json.dumps(JSON_SCHEMA), schema_registry_client=client)
    with_bytes = [{**row, "price": b"%d" % row["id"]} for row in made]
    older = [{**row, "gone": 1} for row in made]
    return [
        avro("Avro", AVRO, AVRO, made),
        avro("Avro of an older version", OLDER, LATER, older),
        avro("Avro with bytes (value by value)", WITH_BYTES, WITH_BYTES, with_bytes),
        Case(
            "Protobuf",
            protos,
            typed_for(registry, f"proto-{count}", "protobuf-confluent"),
            lambda value: of_proto(value, context),
        ),
        Case(
            "JSON", jsons, typed_for(registry, f"json-{count}", "json-confluent"), lambda value: of_json(value, context)
        ),
    ]


def batches_of(case: Case) -> list[pa.RecordBatch]:
    schema = schema_for(case.typed.raw_columns)
    made = []
    for start in range(0, len(case.values), BATCH_ROWS):
        values = case.values[start : start + BATCH_ROWS]
        count = len(values)
        columns = {
            "value": list(values), "topic": ["t"] * count, "partition": [0] * count,
            "offset": list(range(start, start + count)), "headers": [[]] * count,
        }  # fmt: skip
        made.append(pa.RecordBatch.from_pydict({name: columns[name] for name in schema.names}, schema=schema))
    return made


def check(case: Case, batches: Sequence[pa.RecordBatch]) -> None:
    """Both sides give the same rows."""
    found = case.typed.apply(batches[0]).column("value").to_pylist()[:500]
    for value, row in zip(case.values, found, strict=False):
        peer = case.peer(value)
        if not isinstance(peer, dict):
            peer = {
                name: getattr(peer, name) if name != "note" or peer.HasField("note") else None
                for name, _, _, _ in FIELDS
            }
        assert peer == row, (case.name, peer, row)


def least(contenders: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            began = clock()
            run()
            best[name] = min(best[name], clock() - began)
    return best


def decoding(registry: RegistryDouble, count: int, rounds: int) -> list[str]:
    """The lines of the first table."""
    lines = []
    for case in cases(registry, count):
        batches = batches_of(case)
        check(case, batches)

        def ours(case: Case = case, batches: Sequence[pa.RecordBatch] = batches) -> None:
            for batch in batches:
                case.typed.apply(batch)

        def peer(case: Case = case) -> None:
            for value in case.values:
                case.peer(value)

        best = least({"ours": ours, "peer": peer}, rounds, time.thread_time)
        each = {name: seconds / count * 1e9 for name, seconds in best.items()}
        ratio = each["peer"] / each["ours"]
        lines.append(f"| {case.name} | {count:,} | {each['ours']:,.0f} | {each['peer']:,.0f} | {ratio:.1f} |")
        print(lines[-1], flush=True)
    return lines


def reading(registry: RegistryDouble, count: int, codec: str, rounds: int) -> str:
    """A line of the second table."""
    subject = f"read-{count}-{codec}"
    number = registry.register(subject, AVRO)
    with tempfile.TemporaryDirectory() as folder:
        write_bucket(Path(folder), avro_values(AVRO, number, rows(count)), batch=500, codec=CODECS[codec])
        config = {
            "remote.storage.url": folder, "schema.registry.url": registry.url, "value.schema.subject": subject,
        }  # fmt: skip
        plain = {"remote.storage.url": folder}

        def read(config: Mapping[str, str], kind: str | None) -> None:
            table = read_arrow("orders", value_format=kind, config=config).read_all()
            assert table.num_rows == count

        runs = {"bytes": partial(read, plain, None), "typed": partial(read, config, "avro-confluent")}
        best = least(runs, rounds, time.process_time)
    each = {name: seconds / count * 1e9 for name, seconds in best.items()}
    ratio = each["typed"] / each["bytes"]
    line = f"| {count:,} | {codec} | {each['bytes']:,.0f} | {each['typed']:,.0f} | {ratio:.2f} | {1 / ratio:.2f} |"
    print(line, flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[20_000, 500_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with registry_double() as registry:
        tables = [HEAD, *(line for count in arguments.records for line in decoding(registry, count, arguments.rounds))]
        tables += ["", READ_HEAD]
        tables += [reading(registry, count, codec, arguments.rounds) for count in arguments.records for codec in CODECS]
    libraries = ("confluent-kafka", "fastavro", "pyruhvro", "ptars", "pyarrow", "protobuf")
    section = "\n".join([machine(*libraries), "", *tables])
    if arguments.write:
        write("bench_typed", section)


if __name__ == "__main__":
    main()

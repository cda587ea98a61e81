"""A topic in JSON as Parquet files with types: values that do not fit the schema are kept beside the reason.

    python 13_json.py BOOTSTRAP_SERVERS TIER_URL TOPIC SCHEMA_FILE DIRECTORY

SCHEMA_FILE is a JSON Schema with properties `id` and `items`, which is an array.
For values that Confluent's serializer wrote, use json-confluent and a registry instead. Needs DuckDB.
"""

from __future__ import annotations

import sys

import duckdb

from remote_fetch import export_topic

if len(sys.argv) != 6:
    sys.exit(__doc__)
bootstrap_servers, tier_url, topic, schema_file, directory = sys.argv[1:]

report = export_topic(
    topic,
    to=directory,
    end="latest",  # the records that are not tiered yet, too
    columns=["partition", "offset", "value"],
    config={
        "bootstrap.servers": bootstrap_servers,
        "remote.storage.url": tier_url,
        "value.format": "json",
        "value.schema.file": schema_file,
        "value.on.error": "quarantine",
    },
)
print(report.rows, "rows")

connection = duckdb.connect()
rows = connection.read_parquet(f"{directory}/*.parquet")
print(*rows.aggregate("count(value.id), max(value.id), sum(len(value.items))").fetchall())
for row in rows.filter("value_error IS NOT NULL").project('"offset", value_raw, value_error').fetchall():
    print(row)

"""A topic in Avro as a table with types: schemas come from the registry, records from the store, and DuckDB asks.

    python 09_typed_values.py BOOTSTRAP_SERVERS TIER_URL TOPIC REGISTRY_URL

Values of all versions become columns of the latest one, which needs fields `id` and `state`.
Needs the extras `avro` and `registry`, and DuckDB.
"""

from __future__ import annotations

import sys

import duckdb

from remote_fetch import read_arrow

if len(sys.argv) != 5:
    sys.exit(__doc__)
bootstrap_servers, tier_url, topic, registry_url = sys.argv[1:]

records = read_arrow(
    topic,
    columns=["offset", "timestamp", "value"],
    value_format="avro-confluent",
    config={
        "bootstrap.servers": bootstrap_servers,
        "remote.storage.url": tier_url,
        "schema.registry.url": registry_url,
        # A value that does not decode is kept in value_raw, with the reason in value_error.
        "value.on.error": "quarantine",
    },
)
print(records.schema.field("value").type)

# The fields of a value are those of a struct.
result = duckdb.execute(
    """
    SELECT value.state, count(*) AS orders, max(value.id) AS last_id, count(value_error) AS broken
    FROM records GROUP BY ALL ORDER BY ALL
    """
)
for row in result.fetchall():
    print(row)

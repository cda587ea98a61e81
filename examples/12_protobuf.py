"""A topic in Protobuf as a LazyFrame with types: Polars asks for fields, and only the records it needs are fetched.

    python 12_protobuf.py BOOTSTRAP_SERVERS TIER_URL TOPIC REGISTRY_URL

The message needs fields `id` and `items`, which is repeated. Imports are read with what the registry knows of them.
Needs the extras `protobuf` and `registry`, and Polars.
"""

from __future__ import annotations

import sys

import polars as pl

from remote_fetch import scan_topic

if len(sys.argv) != 5:
    sys.exit(__doc__)
bootstrap_servers, tier_url, topic, registry_url = sys.argv[1:]

orders = scan_topic(
    topic,
    value_format="protobuf-confluent",
    config={
        "bootstrap.servers": bootstrap_servers,
        "remote.storage.url": tier_url,
        "schema.registry.url": registry_url,
        # The first message of the schema is meant, unless value.protobuf.message names another.
    },
)
print(orders.schema.field("value").type)

value = pl.col("value").struct
frame = (
    orders.polars()
    .filter(pl.col("offset") >= 10)
    .select("offset", value.field("id"), items=value.field("items").list.len())
    .group_by("items")
    .agg(orders=pl.len(), last_id=pl.col("id").max())
    .sort("items")
)
for row in frame.collect().rows():
    print(row)

"""SQL over a tiered topic: DuckDB reads the stream itself, batch after batch.

Needs duckdb: pip install duckdb
"""

from __future__ import annotations

from importlib.resources import files

import duckdb

from remote_fetch import read_arrow

config = {"remote.storage.url": str(files("remote_fetch.cli") / "demo_bucket")}

# DuckDB finds the reader by the name of the variable. A stream can be read once: make a new reader for a new query.
records = read_arrow("tx", columns=["partition", "offset", "key", "headers"], config=config)
print(
    duckdb.sql(
        """
        SELECT partition, count(*) AS records, count(key) AS with_key, sum(len(headers)) AS headers
        FROM records
        GROUP BY partition
        ORDER BY partition
        """
    )
)

# What is read twice or joined goes into a table first.
records = read_arrow("tx", isolation="read_uncommitted", columns=["partition", "offset"], config=config)
with duckdb.connect() as database:
    database.execute("CREATE TABLE written AS FROM records")
    (highest,) = database.execute('SELECT max("offset") FROM written WHERE partition = 0').fetchone() or (None,)
    print(f"the last record of partition 0 has offset {highest}")

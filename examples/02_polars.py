"""From a tiered topic to a polars frame, through the Arrow C stream: no copy by hand, no Python object for each record.

Needs Polars: pip install polars
"""

from __future__ import annotations

from importlib.resources import files

import polars as pl

from remote_fetch import read_arrow

config = {"remote.storage.url": str(files("remote_fetch.cli") / "demo_bucket")}

# A reader is an Arrow C stream, and polars takes it as it is. Ask only for the columns you need: the others are
# never built.
frame = pl.DataFrame(read_arrow("codecs", columns=["partition", "offset", "timestamp", "value"], config=config))

# Bounds may be offsets, times, or one of these for each partition.
one_minute = pl.DataFrame(
    read_arrow("codecs", start="2023-11-14T22:20:00", end="2023-11-14T22:21:00", columns=["offset"], config=config)
)

summary = frame.group_by("partition").agg(
    pl.len().alias("records"),
    pl.col("value").bin.size().sum().alias("value_bytes"),
    pl.col("timestamp").max().alias("latest"),
)
print(summary.sort("partition"))
print(f"{one_minute.height} of {frame.height} records in one minute")

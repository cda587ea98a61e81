"""A first read: the records of one topic, straight from the bucket to which its broker tiered them.

The bucket ships with the package. A real Kafka 4.1 broker wrote it. The example needs no broker.
"""

from __future__ import annotations

from importlib.resources import files

from remote_fetch import Counters, read_arrow

# Where the broker's tier is: a directory or a URL, as the broker's plug-in wrote it.
config = {"remote.storage.url": str(files("remote_fetch.cli") / "demo_bucket")}

# Record batches come while bytes are still on their way, so a topic may be larger than memory.
counters = Counters()
reader = read_arrow("tx", partitions=[1], config=config, observer=counters)
for batch in reader:
    for row in batch.select(["offset", "timestamp", "key"]).to_pylist():
        print(f"{row['offset']:>3}  {row['timestamp']:%Y-%m-%d %H:%M:%S}  {row['key']!r}")

# The default is read_committed: what was aborted is not there. Ask for everything, and it is.
everything = read_arrow("tx", partitions=[1], isolation="read_uncommitted", columns=["offset"], config=config)
report = counters.report()
print(f"{report.records} records committed, {everything.read_all().num_rows} written")
print(f"read with {report.remote_gets} GETs of segments and {report.index_gets} of indexes")

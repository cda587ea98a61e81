"""Two hundred partitions of one topic at once: requests, connections and threads stay bounded, nothing is lost.

Rules of the file:

- The tier is generated.
- Requests are counted on their way to the store.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remote_fetch
from remote_fetch.observe import Counters
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.stores.artifacts import MissingTool
from tests.stores.proxy import proxy_of
from tests.stores.s3_server import S3Server, s3_server

PARTITIONS = 200
RECORDS = 40
INDEXES = ("index", "leader_epoch_checkpoint", "snapshot")
"""The files that a bounded read asks for besides the log. The listing shows that there are no transaction indexes."""
MAX_THREADS = 16
"""GETs under way at once, as `remote_fetch.fetch.readahead` has them by default."""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    for partition in range(PARTITIONS):
        log = LogBuilder(partition=partition)
        log.append_batch([Record(n, n, b"%d" % partition, b"value" * 20) for n in range(RECORDS)])
        log.roll()
        write_kafka_local(tmp_path / "tier", log.segments())
    try:
        with s3_server(tmp_path / "s3", tmp_path / "tier") as running:
            yield running
    except MissingTool as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_two_hundred_partitions(s3: S3Server) -> None:
    with proxy_of(s3.server.port) as proxy:
        config = s3.configs(endpoint_url=proxy.endpoint)
        before, most_threads = threading.active_count(), 0
        counters = Counters()
        reader = remote_fetch.read_arrow("topic", config=config, observer=counters)
        counts: Counter[Any] = Counter()
        for batch in reader:
            counts.update(batch.column("partition").to_pylist())
            most_threads = max(most_threads, threading.active_count())
        proxy_threads = 2 * proxy.most_connections + 1
        by_kind = Counter(line.split()[1].partition("?")[0].rpartition(".")[2] for line in proxy.asked)
    assert counts == dict.fromkeys(range(PARTITIONS), RECORDS)
    # Without a broker the last segment of each partition is opened to find its end, and then read. The offset indexes
    # are empty: this server refuses their range without telling their size, which is asked for. On a busy machine what
    # is late is asked for again.
    expected = Counter({"log": 2 * PARTITIONS, **dict.fromkeys(INDEXES, PARTITIONS), "index": 2 * PARTITIONS})
    found = Counter({kind: by_kind[kind] for kind in expected})
    assert found >= expected
    assert found.total() <= expected.total() + sum(counters.report().retries.values())
    listings, folders = by_kind.total() - found.total(), PARTITIONS + 2
    assert folders <= listings < 1.5 * folders, "a folder is listed once"
    assert proxy.most_connections <= MAX_THREADS
    assert most_threads - before - proxy_threads <= 2 * MAX_THREADS

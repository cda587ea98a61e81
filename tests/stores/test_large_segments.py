"""A segment of more than 4 GiB (KIP-1333) in S3: its size, and positions beyond 2^32, on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote_fetch.config import Config
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import IsolationLevel
from tests.scan.bucket import COMMITTED, UNCOMMITTED, read
from tests.scan.sparse import SparseTier
from tests.stores.s3_server import BUCKET, S3Server
from tests.stores.servers import StoreServer


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
def test_it_is_read_without_a_byte_of_its_middle(s3: StoreServer, tmp_path: Path, isolation: IsolationLevel) -> None:
    if not isinstance(s3, S3Server):
        pytest.skip("moto keeps objects in memory")
    tier = SparseTier(s3.directory / "large")
    config = {**s3.configs(), "remote.storage.url": f"s3://{BUCKET}/large", **tier.clamped(tmp_path)}
    outcome = read(load_fetcher(Config.parse(config)), start=1503, isolation=isolation, config=config)
    assert [row.value for row in outcome.fine()] == [b"last0", b"last1", b"last2"]
    assert outcome.report.sizes == {"learned": 1}
    assert (outcome.report.remote_gets, outcome.report.remote_bytes) == (1, tier.end_bytes)

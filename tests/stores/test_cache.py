"""The cache of timelines in a bucket, on the stores' real servers."""

from __future__ import annotations

from uuid import uuid4

import pytest

from remote_fetch.config import Config
from remote_fetch.locate.replay_cache import StoreFailed
from remote_fetch.session.file_stores import open_file_store
from tests.stores.servers import StoreServer


def test_files_of_a_cache_in_a_bucket(store: StoreServer) -> None:
    config = Config.parse({**store.configs(), "fetch.remote.read.timeout.ms": 20_000})
    url = str(config.settings.storage_url)
    names = [f"cluster.id/topic.{number}.replay" for number in range(20)]
    cache = open_file_store(config, f"{url}/cache-{uuid4().hex}")
    try:
        assert cache.read(names) == {}
        cache.write({name: name.encode() for name in names[:10]})
        cache.write({names[0]: b"replaced"})
        assert cache.read(names) == {name: name.encode() for name in names[:10]} | {names[0]: b"replaced"}
    finally:
        cache.close()
    absent = open_file_store(config, f"{url.partition('://')[0]}://no-such-bucket-{uuid4().hex[:8]}/cache")
    try:
        with pytest.raises(StoreFailed):
            absent.write({names[0]: b"x"})
    finally:
        absent.close()

"""The ports: who counts as a fetcher or a lister, and that a listing's entry is a plain value."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from fetchers.local import LocalFetcher
from fetchers.memory import MemoryFetcher
from remote_fetch.fetch.spi import ObjectInfo, RemoteStorageFetcher, SegmentLister
from remote_fetch.testing.stores import SegmentStore


@pytest.mark.parametrize("fetcher", [LocalFetcher(), MemoryFetcher(), SegmentStore()])
def test_fetchers_need_inherit_nothing(fetcher: object) -> None:
    assert isinstance(fetcher, RemoteStorageFetcher)
    assert isinstance(fetcher, SegmentLister) is not isinstance(fetcher, SegmentStore)


def test_what_lacks_a_method_is_no_fetcher() -> None:
    assert not isinstance(object(), RemoteStorageFetcher)
    assert not isinstance(object(), SegmentLister)


def test_an_entry_of_a_listing() -> None:
    info = ObjectInfo("a/b.log", 5_000_000_000)
    assert pickle.loads(pickle.dumps(info)) == info
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.size_bytes = 0  # type: ignore[misc]

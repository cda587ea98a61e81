"""The cache of manifests: its entries, and the callers that wait for one GET."""

from __future__ import annotations

import threading

import pytest

from fetchers.layouts import aiven_cache
from fetchers.layouts.aiven_cache import Known, ManifestCache
from fetchers.layouts.aiven_manifest import parse_manifest
from tests.fetchers.layouts.aiven_writer import Written


def known(*, packs: bool) -> Known:
    data = Written(bytes(250), is_compressed=packs).objects()
    return Known(parse_manifest(next(data[name] for name in data if name.endswith("manifest"))))


def test_the_last_ones_used_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiven_cache, "_MAX_MANIFESTS", 2)
    cache, one = ManifestCache(), known(packs=False)
    cache.put("a", one)
    cache.put("b", one)
    assert cache.get("a") is one
    cache.put("c", one)
    assert [cache.get(name) is not None for name in "abc"] == [True, False, True]


def test_chunks_count_too_but_one_is_always_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiven_cache, "_MAX_CHUNKS", 5)
    cache = ManifestCache()
    for name in "aab":
        cache.put(name, known(packs=True))  # three chunks
    assert [cache.get(name) is not None for name in "ab"] == [False, True]
    monkeypatch.setattr(aiven_cache, "_MAX_CHUNKS", 1)
    cache.put("c", known(packs=True))
    assert [cache.get(name) is not None for name in "bc"] == [False, True]
    monkeypatch.setattr(aiven_cache, "_MAX_CHUNKS", 3)
    cache.put("d", known(packs=False))
    assert cache.get("c") is not None


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiven_cache, "_PATIENCE_S", 0.01)
    cache, went_on = ManifestCache(), threading.Event()
    with cache.turn("a"):

        def other() -> None:
            with cache.turn("a"):
                went_on.set()

        thread = threading.Thread(target=other)
        thread.start()
        assert went_on.wait(30)
        thread.join()
    with cache.turn("a"):  # it was given back by the one that had it
        pass

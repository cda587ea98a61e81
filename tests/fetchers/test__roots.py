"""Further roots: which fetcher opens each, which options it gets, and that all of them are closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from fetchers import _roots
from fetchers._composed import ComposedFetcher
from fetchers._options import timeouts_of
from fetchers.http import HttpFetcher
from fetchers.local import LocalFetcher
from fetchers.memory import MemoryFetcher
from fetchers.s3 import S3Fetcher
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, StorageUnavailable
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.model import IndexType
from remote_fetch.testing.contract import contract_segments
from tests.stores.range_server import RangeServer

URL, ROOTS = "remote.storage.url", "remote.storage.roots"
BY_URL = {"remote.storage.layout": "url"}
SEGMENT = contract_segments()[0]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, ComposedFetcher]:
    """Each root's fetcher, by its URL, as they are opened."""
    found: dict[str, ComposedFetcher] = {}
    make = _roots._opened

    def watched(url: str, *more: Any) -> Any:
        made = make(url, *more)
        assert isinstance(made, ComposedFetcher)
        found[url] = made
        return made

    monkeypatch.setattr(_roots, "_opened", watched)
    return found


def test_segments_of_one_topic_in_three_kinds_of_store(tmp_path: Path) -> None:
    for name, data in (("7.log", SEGMENT.log), ("7.index", SEGMENT.offset_index)):
        (tmp_path / name).write_bytes(data)
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/roots-of-the-tests/8.log", SEGMENT.log)
    with RangeServer({"tier/9.log": SEGMENT.log}) as server:
        roots = f"memory://roots-of-the-tests, {server.url}/tier ,"
        fetcher = load_fetcher(Config.parse({URL: str(tmp_path), ROOTS: roots, **BY_URL}))
        for location in (
            "7.log",
            f"file://{tmp_path}/7.log",
            "memory://roots-of-the-tests/8.log",
            f"{server.url}/tier/9.log",
        ):
            one = replace(SEGMENT.metadata, custom_metadata=location.encode())
            assert bytes(fetcher.fetch_log_segment(one, 10, 60)) == SEGMENT.log[10:60]
            assert fetcher.size(one) == len(SEGMENT.log)  # type: ignore[attr-defined]
            found = fetcher.fetch_index(one, IndexType.OFFSET)
            assert found is None or bytes(found) == SEGMENT.offset_index
        fetcher.close()
    filesystem.rm("/roots-of-the-tests", recursive=True)


def test_options_go_to_roots_of_the_same_kind_alone(opened: dict[str, ComposedFetcher], tmp_path: Path) -> None:
    secret = {"remote.storage.options.key": "k", "remote.storage.options.secret": "s3cret"}
    more = {"fetch.remote.read.timeout.ms": "1234", "remote.storage.options.endpoint_url": "http://127.0.0.1:1"}
    fetcher = S3Fetcher()
    roots = f"s3a://bucket-b/tier,s3://bucket-c,{tmp_path},http://127.0.0.1:1/tier"
    fetcher.configure({URL: "s3://bucket-a/tier", ROOTS: roots, **BY_URL, **secret, **more})
    kinds = {url: type(one) for url, one in opened.items()}
    assert kinds == {
        "s3a://bucket-b/tier": S3Fetcher,
        "s3://bucket-c": S3Fetcher,
        str(tmp_path): LocalFetcher,
        "http://127.0.0.1:1/tier": HttpFetcher,
    }
    for url, one in opened.items():
        has_secret = "s3cret" in one._configs.values()
        assert has_secret is url.startswith("s3")
        assert timeouts_of(one._configs).read_s == 1.234
        assert one._configs[ROOTS] == ""
    fetcher.close()


def test_all_of_them_are_closed(opened: dict[str, ComposedFetcher], tmp_path: Path) -> None:
    fetcher = load_fetcher(Config.parse({URL: str(tmp_path), ROOTS: "memory://b,memory://c", **BY_URL}))
    fetcher.close()
    assert len(opened) == 2
    for one in opened.values():
        with pytest.raises(ConfigError, match="closed"):
            one.opened_store()


def test_those_that_were_opened_are_closed_if_another_cannot_be(
    opened: dict[str, ComposedFetcher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {URL: str(tmp_path), **BY_URL}
    with pytest.raises(ConfigError):
        load_fetcher(Config.parse({**given, ROOTS: "memory://b,nosuch://c"}))

    def fails(self: LocalFetcher, configs: Mapping[str, str]) -> None:
        raise StorageUnavailable("not now")

    monkeypatch.setattr(LocalFetcher, "open_store", fails)
    with pytest.raises(StorageUnavailable):
        load_fetcher(Config.parse({**given, ROOTS: "memory://d"}))
    assert sorted(opened) == ["memory://b", "memory://d"]
    for one in opened.values():
        with pytest.raises(ConfigError, match="closed"):
            one.opened_store()


def test_new_credentials_for_all_of_them(opened: dict[str, ComposedFetcher], tmp_path: Path) -> None:
    fetcher = MemoryFetcher()
    fetcher.configure({URL: "memory://a", ROOTS: str(tmp_path), **BY_URL})
    (tmp_path / "7.log").write_bytes(b"log")
    (before,) = (one.opened_store() for one in opened.values())
    fetcher.refresh_credentials()
    (after,) = (one.opened_store() for one in opened.values())
    assert before is not after
    one = replace(SEGMENT.metadata, custom_metadata=f"{tmp_path}/7.log".encode())
    assert bytes(fetcher.fetch_log_segment(one, 0)) == b"log"
    fetcher.close()


@pytest.mark.parametrize(
    ("roots", "said"),
    [
        ("tier", "the root 'tier' names no folder"),
        ("/", "the root '/' names no folder"),
        ("file:///", "names no folder"),
        ("s3://", "names no folder"),
        ("s3:///tier", "names no bucket"),
        ("http://[", "names no folder"),
        ("http://me:s3cret@?s3cret", "names no folder"),
        ("nosuch://b", "no fetcher of remote-fetch reads a root whose URL begins with nosuch://"),
    ],
)
def test_a_root_that_is_none(roots: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load_fetcher(Config.parse({URL: str(tmp_path), ROOTS: roots, **BY_URL}))
    assert caught.value.key == ROOTS
    assert "s3cret" not in str(caught.value)


def test_layouts_that_choose_no_root(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'kafka_local' is none") as caught:
        load_fetcher(Config.parse({URL: str(tmp_path), ROOTS: "memory://b"}))
    assert (caught.value.key, "remote.storage.layout=url" in (caught.value.hint or "")) == (ROOTS, True)

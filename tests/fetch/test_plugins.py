"""Our own plug-ins are found without looking through all that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from remote_fetch.config import Config
from remote_fetch.fetch import plugins, registry
from remote_fetch.fetch.plugins import FETCHERS_GROUP, LAYOUTS_GROUP, kind_of, own_entry_point, scheme_of


def test_our_own_by_group_and_name() -> None:
    found = own_entry_point(FETCHERS_GROUP, "local")
    assert found is not None
    assert found.value == "fetchers.local:LocalFetcher"


@pytest.mark.parametrize(("group", "name"), [(FETCHERS_GROUP, "nosuch"), (LAYOUTS_GROUP, "local")])
def test_what_is_not_ours(group: str, name: str) -> None:
    assert own_entry_point(group, name) is None


def test_sources_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(plugins, "distribution", distribution)
    assert own_entry_point(FETCHERS_GROUP, "local") is None


def test_one_of_ours_needs_no_look_at_all_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str) -> None:
        raise AssertionError(f"all of {group} were looked through")

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    assert type(registry.load_fetcher(Config.parse({"remote.storage.url": "/tier"}))).__name__ == "LocalFetcher"


def test_schemes_and_kinds() -> None:
    assert [scheme_of(url) for url in ("/a", "a b", "file:///a", "S3://b/c")] == ["", "", "file", "s3"]
    assert kind_of("s3://a") == kind_of("S3A://b") == ("s3", "")
    assert kind_of("/a") == kind_of("file:///b")
    assert kind_of("sftp://a") == ("fsspec", "sftp")
    assert kind_of("ftp://a") != kind_of("sftp://a"), "fsspec reads both, with other options"

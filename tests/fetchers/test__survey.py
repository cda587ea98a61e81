"""The message about a place without a tier: each mistake has its own sentence, with the URL and the names there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from fetchers._composed import ComposedFetcher
from fetchers.any_fsspec import FsspecFetcher
from fetchers.local import LocalFetcher
from fetchers.memory import MemoryFetcher
from remote_fetch import read_arrow
from remote_fetch.errors import UnknownTopic
from remote_fetch.model import Survey
from remote_fetch.testing.segments import BuiltSegment
from remote_fetch.testing.stores import write_kafka_local
from tests.scan.bucket import plain_log

AIVEN = Path(__file__).parents[1] / "golden" / "aiven" / "aiven-zstd" / "remote"
WROTE = "what the layout 'kafka_local' writes begins in its folder"
INSIDE = "it is a folder inside of a tier of the layout 'kafka_local'"


def built() -> list[BuiltSegment]:
    return plain_log(segments=1).segments()


def tier(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    write_kafka_local(directory, built())
    return directory


def partition_folder(directory: Path) -> Path:
    (found,) = {path.parent for path in tier(directory).rglob("*.log")}
    return found


def surveyed(url: str, **options: str) -> Survey:
    fetcher: ComposedFetcher = MemoryFetcher() if url.startswith("memory:") else LocalFetcher()
    fetcher.configure({"remote.storage.url": url, **{f"remote.storage.{name}": text for name, text in options.items()}})
    return fetcher.survey()


def a_file(directory: Path) -> Path:
    (directory / "x").touch()
    return directory / "x"


def some_files(directory: Path) -> Path:
    for name in "abc":
        (directory / name).mkdir()
    a_file(directory)
    return directory


def a_tier_below(directory: Path, name: str) -> Path:
    tier(directory / name)
    return directory


CASES: dict[str, tuple[Callable[[Path], Path], str, str | None]] = {
    "missing": (lambda root: root / "no", "it does not exist", None),
    "empty": (lambda root: root, "it is empty", None),
    "a file": (a_file, "it is a file, and a directory is needed", None),
    "something else": (
        some_files, "it holds 'a', 'b', 'c', 'x', and nothing that the layout 'kafka_local' writes", None,
    ),
    "one level too high": (lambda root: a_tier_below(root, "in"), f"{WROTE} 'in'", "Set remote.storage.url={}/in"),
    "two levels too high": (
        lambda root: a_tier_below(root, "in/it"), f"{WROTE} 'in/it'", "Set remote.storage.url={}/in/it",
    ),
    "one level too low": (partition_folder, INSIDE, "Set remote.storage.url={parent}"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "found", "hint"), CASES.values(), ids=CASES)
def test_each_mistake_has_a_sentence_of_its_own(
    make: Callable[[Path], Path], found: str, hint: str | None, tmp_path: Path
) -> None:
    url = make(tmp_path)
    wanted = None if hint is None else hint.format(url, parent=url.parent)
    better = None if wanted is None else ("remote.storage.url", wanted.partition("=")[2])
    assert surveyed(str(url)) == Survey(str(url), found, wanted, better)
    with pytest.raises(UnknownTopic) as raised:
        read_arrow("topic", config={"remote.storage.url": str(url)})
    assert f"no segment of topic 'topic' is in the remote storage {url}: {found}. " in str(raised.value)


def test_the_url_that_is_advised_fits(tmp_path: Path) -> None:
    hint = surveyed(str(a_tier_below(tmp_path, "in/it"))).hint or ""
    assert read_arrow("topic", config={"remote.storage.url": hint.rpartition("=")[2]}).read_all().num_rows == 20
    hint = surveyed(str(partition_folder(tmp_path / "low"))).hint or ""
    assert read_arrow("topic", config={"remote.storage.url": hint.rpartition("=")[2]}).read_all().num_rows == 20


class Served(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem whose URLs name a server."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        path = "/" + path.partition("://")[2].partition("/")[2] if "://" in path else path
        return str(super()._strip_protocol(path))


def test_the_url_that_is_better_has_user_and_port_and_the_shown_one_has_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(_registry, "served", Served)
    Served(skip_instance_cache=True).pipe_file("/data/below/kafka-tiered-storage/x/y.log", b"1")
    fetcher = FsspecFetcher()
    fetcher.configure({"remote.storage.url": "served://me:s3cret@nas:2222/data"})
    assert fetcher.survey() == Survey(
        "served://nas:2222/data",
        f"{WROTE} 'below'",
        "Set remote.storage.url=served://nas:2222/data/below",
        ("remote.storage.url", "served://me:s3cret@nas:2222/data/below"),
    )


def test_a_tier_is_no_mistake(tmp_path: Path) -> None:
    assert surveyed(str(tier(tmp_path))) == Survey(str(tmp_path))
    with pytest.raises(UnknownTopic, match=f"in the remote storage {tmp_path}; topics there: topic.*nearest name"):
        read_arrow("topics", config={"remote.storage.url": str(tmp_path)})


def test_a_wrong_layout(tmp_path: Path) -> None:
    assert surveyed(str(tier(tmp_path)), layout="aiven") == Survey(
        str(tmp_path),
        "its names are those of the layout 'kafka_local'",
        "Set remote.storage.layout=kafka_local",
        ("remote.storage.layout", "kafka_local"),
    )


@pytest.mark.parametrize("level", ["", "tiered"])
def test_a_tier_of_aivens_plug_in(level: str) -> None:
    """It has a topic `big.topic_1-0`, whose folder looks like that of a partition of the other layout."""
    url = str(AIVEN / level) if level else str(AIVEN)
    where = "its names are those of the layout 'aiven'"
    below = "what the layout 'aiven' writes begins in its folder 'tiered'"
    assert surveyed(url) == Survey(
        url, where if level else below, "Set remote.storage.layout=aiven", ("remote.storage.layout", "aiven")
    )


@pytest.mark.parametrize("topic", ["big.topic_1-0", "big.topic_1", "codecs"])
def test_the_error_names_the_layout_of_aivens_plug_in(topic: str) -> None:
    said = f"no segment of topic '{topic}' is in .*Set remote.storage.layout=aiven"
    with pytest.raises(UnknownTopic, match=said):
        read_arrow(topic, config={"remote.storage.url": str(AIVEN / "tiered")})


def test_a_tilde_shows_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert surveyed("~/tier") == Survey(f"~/tier ({tmp_path}/tier)", "it does not exist")
    monkeypatch.chdir(tmp_path)
    assert surveyed("tier").place == f"tier ({tmp_path}/tier)"


def test_no_secret_is_shown() -> None:
    found = surveyed("memory://me:secret@nowhere/tier?sig=secret")
    assert "secret" not in str(found)
    assert "nowhere/tier" in found.place

"""The registry: how a fetcher is found by name, by class, on a path or by the URL, and the error if it is not.

Rules of the file:

- If a test changes the import path, it runs in a separate process, or the fixture undoes the change.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, StorageDenied
from remote_fetch.fetch import plugins, registry
from remote_fetch.fetch.plugins import FETCHERS_GROUP
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.fetch.spi import RemoteStorageFetcher, SegmentLister

CLASS = "remote.storage.fetcher.class"
CLASS_PATH = "remote.storage.fetcher.class.path"
URL = "remote.storage.url"
ROOT = Path(__file__).parents[2]

SOURCE = """
class Fetcher:
    def configure(self, configs): self.configs = configs
    def fetch_log_segment(self, metadata, start_position, end_position=-1): return b""
    def fetch_index(self, metadata, index_type): return None
    def close(self): pass

class Refusing(Fetcher):
    def configure(self, configs):
        from remote_fetch.errors import StorageDenied
        raise StorageDenied("not with these")

class Needy(Fetcher):
    def __init__(self, argument): pass

class Half:
    def configure(self, configs): pass
    def close(self): pass

value = 5
"""


@pytest.mark.parametrize("url", ["s3:/b/tier", "S3:b/tier", "gs:/me:secret@b/tier?secret", "memory:/b/tier"])
def test_a_url_that_lacks_a_slash(url: str) -> None:
    """It would be read as a directory of that name."""
    with pytest.raises(ConfigError, match=r"two slashes .* Set remote\.storage\.url=[a-z0-9]+://b/tier$") as raised:
        load_fetcher(Config.parse({URL: url}))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["simplecache::s3://me:secret@b/tier", "zip:///::file:///tier.zip?secret"])
@pytest.mark.parametrize("more", [{}, {CLASS: "fsspec"}])
def test_a_chain_of_urls(url: str, more: dict[str, str]) -> None:
    """Its first part was taken for a class, or for a file with keys that is not there."""
    with pytest.raises(ConfigError, match=r"remote\.storage\.url is a chain of URLs \(::\)") as raised:
        load_fetcher(Config.parse({URL: url, **more}))
    assert "secret" not in str(raised.value)


def test_a_url_with_a_password_that_lacks_its_scheme() -> None:
    for url in ("user:secret@host/tier", "user:secret@host", "user:se@cret@host:80/tier"):
        with pytest.raises(ConfigError, match=r"but no scheme such as https://\. A path") as raised:
            load_fetcher(Config.parse({URL: url}))
        assert "secret" not in str(raised.value)


def test_what_only_looks_like_one(tmp_path: Path) -> None:
    for url in (
        f"file:{tmp_path}",
        "./s3:/b",
        "2026-01:a",
        "nothing:x",
        "./user:secret@host",
        "a@b",
        "a/b:c@d",
        r"C:\a\b@c",
    ):
        load_fetcher(Config.parse({URL: url})).close()


def test_a_path_of_windows() -> None:
    load_fetcher(Config.parse({URL: r"C:\Users\me@host\tier"})).close()


def test_a_directory_that_has_the_name_of_a_user_and_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:b@c" / "tier").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    load_fetcher(Config.parse({URL: "a:b@c/tier"})).close()


@pytest.fixture(autouse=True)
def unchanged_imports() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("plugged", None)


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("plug")
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, "plug", module)
    return module


def refused(config: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_fetcher(Config.parse(config))
    return caught.value


@pytest.mark.parametrize(
    ("url", "fetcher"),
    [
        ("/tier", "LocalFetcher"),
        ("tier/below", "LocalFetcher"),
        ("file:///tier", "LocalFetcher"),
        ("FILE:///tier", "LocalFetcher"),
        ("memory://tier", "MemoryFetcher"),
    ],
)
def test_the_scheme_of_the_url_chooses(url: str, fetcher: str) -> None:
    found = load_fetcher(Config.parse({URL: url}))
    assert type(found).__name__ == fetcher
    assert isinstance(found, RemoteStorageFetcher)
    assert isinstance(found, SegmentLister)
    found.close()


@pytest.mark.parametrize(
    ("url", "given"),
    [("FILE:///Tier", {URL: "file:///Tier"}), ("S3A://Bucket/A", {URL: "s3a://Bucket/A"}), ("Tier", {})],
)
def test_a_scheme_may_be_in_capitals(url: str, given: dict[str, str]) -> None:
    assert registry._checked_url(Config.parse({URL: url})) == given


@pytest.mark.parametrize("url", ["http://[host/tier", "s3://[bucket/tier"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="is no URL"):
        load_fetcher(Config.parse({URL: url}))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        *((f"{scheme}://b/p", "s3") for scheme in ("s3", "s3a", "S3A")),
        *((f"{scheme}://b/p", "gcs") for scheme in ("gs", "gcs")),
        *((f"{scheme}://c/p", "azure") for scheme in ("az", "abfs", "abfss", "wasb", "wasbs")),
        *((f"{scheme}://h/p", "http") for scheme in ("http", "https")),
        *((f"{scheme}://h/p", "fsspec") for scheme in ("sftp", "webhdfs", "oss", "smb")),
        ("nosuch://h/p", "nosuch"),
    ],
)
def test_each_scheme_has_its_fetcher(url: str, name: str) -> None:
    assert registry._name_from_url(Config.parse({URL: url})) == name


def test_somebody_elses_fetcher_goes_before_what_fsspec_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(group: str) -> EntryPoints:
        return EntryPoints([EntryPoint(name, "plug:Fetcher", group) for name in ("s3", "s3a", "sftp", "fsspec")])

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    assert registry._name_from_url(Config.parse({URL: "sftp://b"})) == "sftp"
    assert registry._name_from_url(Config.parse({URL: "hdfs://b"})) == "fsspec"
    assert registry._name_from_url(Config.parse({URL: "s3a://b"})) == "s3", "what is ours needs no look at others"


@pytest.mark.parametrize("name", ["local", "memory"])
def test_a_short_name_goes_before_the_url(name: str) -> None:
    found = load_fetcher(Config.parse({CLASS: name, URL: "nosuch://tier"}))
    assert type(found).__module__ == f"fetchers.{name}"


@pytest.mark.usefixtures("shipped_limits")
def test_a_class_is_configured_with_our_keys_as_text(plug: ModuleType) -> None:
    found: Any = load_fetcher(
        Config.parse(
            {
                CLASS: "plug:Fetcher",
                "remote.storage.options.token": 5,
                "fetch.remote.read.timeout.ms": 70,
                "group.id": "g",
            }
        )
    )
    assert type(found) is plug.Fetcher
    assert found.configs["remote.storage.options.token"] == "5"
    assert found.configs["fetch.remote.read.timeout.ms"] == "70"
    assert found.configs["fetch.remote.connect.timeout.ms"] == "1000"
    assert "group.id" not in found.configs


def test_a_service_that_signs_urls_needs_no_storage() -> None:
    service = {"remote.locator": "service", "remote.locator.url": "https://service.example"}
    assert type(load_fetcher(Config.parse(service))).__name__ == "VendedFetcher"
    assert type(load_fetcher(Config.parse({**service, URL: "memory://x"}))).__name__ == "MemoryFetcher"
    assert type(load_fetcher(Config.parse({**service, CLASS: "memory", URL: "memory://x"}))).__name__ == "MemoryFetcher"


def test_no_storage_at_all() -> None:
    error = refused({})
    assert error.key == URL
    assert "no remote storage is configured" in str(error)
    assert URL in (error.hint or "")


@pytest.mark.parametrize(
    "config", [{CLASS: "nosuch"}, {URL: "nosuch://bucket/x"}, {URL: "nosuch://["}], ids=["name", "scheme", "odd"]
)
def test_an_unknown_name_lists_what_there_is(config: dict[str, str]) -> None:
    error = refused(config)
    assert error.key == CLASS
    assert "no fetcher is called 'nosuch'; installed are" in str(error)
    assert "local, memory" in str(error)


def test_an_unknown_name_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints())
    error = refused({CLASS: "nosuch"})
    assert "installed are none" in str(error)
    assert "--py-files" in str(error.hint)


def test_an_entry_point_of_somebody_else(monkeypatch: pytest.MonkeyPatch, plug: ModuleType) -> None:
    def entry_points(group: str) -> EntryPoints:
        assert group == FETCHERS_GROUP
        return EntryPoints([EntryPoint("mine", "plug:Fetcher", group), EntryPoint("gone", "plug:Gone", group)])

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    assert type(load_fetcher(Config.parse({CLASS: "mine"}))) is plug.Fetcher
    assert "cannot load plug:Gone" in str(refused({CLASS: "gone"}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_module:Fetcher", "cannot load no_such_module:Fetcher: No module named 'no_such_module'"),
        ("no_such_module:Fetcher", f"Install no_such_module, or name the folder that has it in {CLASS}.path"),
        ("plug:NoSuchClass", "cannot load plug:NoSuchClass"),
        ("plug:", "cannot load plug:"),
        (":Fetcher", "cannot load :Fetcher"),
        ("http://u:s3cret@host/tier", "is neither a short name nor package.module:Class"),
        ("package/module.py:Class", "Give the module by its name, with dots"),
        ("http:u:s3cret@host", "is neither a short name nor package.module:Class"),
        ("https:host?sig=s3cret", "is neither a short name nor package.module:Class"),
        ("plug:Needy", "cannot be made without arguments"),
        ("plug:value", "cannot be made without arguments"),
        ("plug:Half", "is no RemoteStorageFetcher: it lacks fetch_log_segment, fetch_index"),
    ],
)
def test_a_class_that_cannot_be_used(plug: ModuleType, name: str, text: str) -> None:
    error = refused({CLASS: name})
    assert error.key == CLASS
    assert text in str(error)
    assert "shadowing" not in str(error)
    assert "s3cret" not in str(error)


def test_what_configure_raises_is_raised(plug: ModuleType) -> None:
    with pytest.raises(StorageDenied, match="not with these"):
        load_fetcher(Config.parse({CLASS: "plug:Refusing"}))


def in_a_directory(place: Path) -> Path:
    (place / "plugged").mkdir()
    (place / "plugged" / "__init__.py").write_text(SOURCE, encoding="utf-8")
    return place


def in_a_zip(place: Path) -> Path:
    with zipfile.ZipFile(place / "plugged.zip", "w") as archive:
        archive.writestr("plugged/__init__.py", SOURCE)
    return place / "plugged.zip"


def in_a_wheel(place: Path) -> Path:
    with zipfile.ZipFile(place / "plugged-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("plugged/__init__.py", SOURCE)
        archive.writestr("plugged-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
        archive.writestr("plugged-1.0.dist-info/entry_points.txt", f"[{FETCHERS_GROUP}]\nplugged = plugged:Fetcher\n")
    return place / "plugged-1.0-py3-none-any.whl"


@pytest.mark.parametrize("packed", [in_a_directory, in_a_zip, in_a_wheel])
def test_a_class_on_a_path(tmp_path: Path, packed: Any) -> None:
    path = str(packed(tmp_path))
    assert "No module named 'plugged'" in str(refused({CLASS: "plugged:Fetcher"}))
    for _ in range(2):
        found = load_fetcher(Config.parse({CLASS: "plugged:Fetcher", CLASS_PATH: path}))
        assert type(found).__module__ == "plugged"
    assert sys.path.count(path) == 1
    assert sys.path[-1] == path  # behind everything that is installed


def test_a_wheel_on_a_path_brings_its_short_names(tmp_path: Path) -> None:
    found = load_fetcher(Config.parse({CLASS: "plugged", CLASS_PATH: str(in_a_wheel(tmp_path))}))
    assert type(found).__module__ == "plugged"


@pytest.mark.parametrize("files", [["__init__.py"], ["mine.py"]], ids=["package", "namespace"])
def test_a_package_that_shadows_ours_is_named(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "fetchers").mkdir()
    for file in files:
        (tmp_path / "fetchers" / file).write_text("", encoding="utf-8")
    code = (
        "import sys\n"
        "import remote_fetch.fetch.registry as registry\n"
        f"sys.path[:] = [{str(tmp_path)!r}] + [p for p in sys.path if p not in ('', {str(ROOT)!r})]\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        "from remote_fetch.fetch import plugins\n"
        "plugins.entry_points = lambda group: [registry.EntryPoint('local', 'fetchers.local:LocalFetcher', group)]\n"
        "from remote_fetch.config import Config\n"
        "from remote_fetch.errors import ConfigError\n"
        "try:\n"
        "    registry.load_fetcher(Config.parse({'remote.storage.url': '/tier'}))\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    assert "cannot load fetchers.local:LocalFetcher" in result.stdout
    assert str(tmp_path / "fetchers") in result.stdout
    assert "is it shadowing the one of remote-fetch?" in result.stdout


def test_no_guess_about_shadowing_where_nothing_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("gone", "no_such_module.at_all:Fetcher", FETCHERS_GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: EntryPoints([entry]))
    assert "shadowing" not in str(refused({CLASS: "gone"}))


def test_a_missing_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the cause if the class is not found. The path of a class that is found is not looked at."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    missing = str(tmp_path / "no-such-folder")
    with pytest.raises(ConfigError, match=rf"No module named 'absent'.*class\.path={missing}: there is no such"):
        load_fetcher(Config.parse({CLASS: "absent:Fetcher", CLASS_PATH: missing}))
    with pytest.raises(ConfigError, match=r"No module named 'absent'\. Install absent, or name the folder"):
        load_fetcher(Config.parse({CLASS: "absent:Fetcher", CLASS_PATH: str(tmp_path)}))
    with pytest.raises(ConfigError, match=rf"no fetcher is called 'absent'.*class\.path={missing}: there is no such"):
        load_fetcher(Config.parse({CLASS: "absent", CLASS_PATH: missing}))
    assert "secret" not in str(refused({CLASS: "absent", CLASS_PATH: "https://me:secret@host/plugins.zip"}))
    load_fetcher(Config.parse({CLASS: "fetchers.local:LocalFetcher", CLASS_PATH: missing, URL: str(tmp_path)}))

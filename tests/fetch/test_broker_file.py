"""A broker's own file: its layout, its keys here, the keys that win over it, and the notice about the rest."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from remote_fetch import read_arrow
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, UnsupportedFormat
from remote_fetch.fetch import broker_file
from remote_fetch.fetch.broker_file import complete
from remote_fetch.fetch.registry import load_fetcher
from remote_fetch.observe import Event, Notice
from remote_fetch.session.session import Session

KEY = "remote.storage.broker.properties"
AIVEN = "remote.log.storage.manager.class.name=io.aiven.kafka.tieredstorage.RemoteStorageManager\n"
LOCAL = "remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage\n"
STORAGE = "io.aiven.kafka.tieredstorage.storage."
GOLDENS = Path(__file__).parents[1] / "golden"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the broker's properties go."""
    return tmp_path / "server.properties"


def test_without_a_file_nothing_is_read() -> None:
    config = Config.parse({"remote.storage.url": "/tier"})
    assert complete(config) == (config, frozenset(), ())


def test_a_local_tier(file: Path) -> None:
    file.write_text(f"{LOCAL}rsm.config.dir=/mnt/\\\n   tier\nbroker.id=1\n")
    found = complete(Config.parse({KEY: str(file), "group.id": "g"}))
    assert found.config.settings.storage_url == "/mnt/tier"
    assert found.config.settings.storage_layout == "kafka_local"
    assert found.from_file == {"remote.storage.url", "remote.storage.layout"}
    assert found.config.librdkafka == {"group.id": "g"}
    file.write_text(LOCAL)
    with pytest.raises(ConfigError, match="which directory"):
        complete(Config.parse({KEY: str(file)}))


def test_a_value_of_a_config_provider_is_not_in_the_file(file: Path) -> None:
    """The store would refuse the name of the value as a wrong key."""
    secret = "remote.storage.options.secret"
    text = (
        f"{AIVEN}rsm.config.storage.backend.class={STORAGE}s3.S3Storage\nrsm.config.storage.s3.bucket.name=tier\n"
        "rsm.config.storage.aws.access.key.id=theirs\n"
        "rsm.config.storage.aws.secret.access.key=${file:/etc/kafka/store.properties:secret}\n"
    )
    file.write_text(f"{text}config.providers=file\n")
    with pytest.raises(ConfigError, match=rf"the value of {secret} is not in the file") as caught:
        complete(Config.parse({KEY: str(file)}))
    assert caught.value.key == secret
    assert "store.properties" not in str(caught.value)
    assert complete(Config.parse({KEY: str(file), secret: "s3cret"})).config.options["secret"] == "s3cret"
    file.write_text(text)  # without providers a broker takes the text as it is
    assert complete(Config.parse({KEY: str(file)})).config.options["secret"].startswith("${file:")


def test_what_the_user_sets_wins(file: Path) -> None:
    file.write_text(
        f"{AIVEN}x.storage.backend.class={STORAGE}s3.S3Storage\nx.storage.s3.bucket.name=tier\n"
        "x.storage.aws.access.key.id=theirs\nx.storage.aws.secret.access.key=s3cret\nx.storage.proxy.host=h\n"
        "x.key.prefix=a/\nremote.log.storage.manager.impl.prefix=x.\n"
    )
    own = {
        "remote.storage.options.key": "mine",
        "remote.storage.layout.key.prefix": "b/",
        "remote.locator.client.id": "c",
        "fetch.remote.read.timeout.ms": 7,
    }
    found = complete(Config.parse({KEY: str(file), **own}))
    assert dict(found.config.options) == {"key": "mine", "secret": "s3cret"}
    assert dict(found.config.layout) == {"key.prefix": "b/"}
    assert dict(found.config.locator) == {"client.id": "c"}
    assert found.config.settings.read_timeout_ms == 7
    assert found.config.settings.storage_url == "s3://tier"
    assert "remote.storage.options.key" not in found.from_file
    assert "remote.storage.options.secret" in found.from_file
    assert [text.partition(":")[0] for text in found.unmapped] == ["storage.proxy.host"]
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("url", "options"), [("{}", set()), ("file://{}", set()), ("s3://copy", {"secret"}), ("s3://copy/{}", {"secret"})]
)
def test_a_copy_on_this_machine_gets_no_options_of_the_brokers_store(
    file: Path, tmp_path: Path, url: str, options: set[str]
) -> None:
    """The fetcher `local` would refuse them, and the user did not give them."""
    file.write_text(
        f"{AIVEN}rsm.config.storage.backend.class={STORAGE}s3.S3Storage\nrsm.config.storage.s3.bucket.name=tier\n"
        "rsm.config.storage.aws.secret.access.key=s3cret\nrsm.config.key.prefix=a/\n"
    )
    found = complete(Config.parse({KEY: str(file), "remote.storage.url": url.format(tmp_path)}))
    assert set(found.config.options) == options
    assert dict(found.config.layout) == {"key.prefix": "a/"}
    if not options:
        load_fetcher(found.config).close()


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", ConfigError, "the broker has no tier"),
        ("remote.log.storage.manager.class.name=x.Y", ConfigError, "storage manager 'x.Y'; known are io.aiven"),
        (f"{AIVEN}rsm.config.segment.format=iceberg", UnsupportedFormat, "Iceberg"),
        ("a=\\u12", ConfigError, "line 1"),
    ],
)
def test_files_that_nothing_can_be_made_of(file: Path, text: str, error: type[Exception], said: str) -> None:
    file.write_text(text)
    with pytest.raises(error, match=said) as caught:
        complete(Config.parse({KEY: str(file)}))
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as caught:
        complete(Config.parse({KEY: str(file)}))
    assert caught.value.key == KEY


def test_a_layout_that_does_not_load_hides_no_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = list(entry_points(group="remote_fetch.layouts"))
    broken = EntryPoint("broken", "nowhere.at:All", "remote_fetch.layouts")
    monkeypatch.setattr(broker_file, "entry_points", lambda group: [broken, *known])
    file.write_text(f"{LOCAL}rsm.config.dir=/tier")
    assert complete(Config.parse({KEY: str(file)})).config.settings.storage_url == "/tier"


def test_a_tier_is_read_by_its_brokers_file_alone(file: Path) -> None:
    """The observer gets the keys that could not be mapped."""
    remote = GOLDENS / "aiven" / "aiven-zstd" / "remote"
    file.write_text(
        f"{AIVEN}rsm.config.storage.backend.class={STORAGE}filesystem.FileSystemStorage\n"
        f"rsm.config.storage.root={remote}\nrsm.config.key.prefix=tiered/\nrsm.config.storage.proxy.host=h\n"
    )
    heard: list[Event] = []
    table = read_arrow("tx-java", config={KEY: str(file)}, columns=["offset"]).read_all()
    assert table.num_rows > 10
    with Session.open({KEY: str(file)}, heard.append):
        pass
    (notice,) = (event for event in heard if isinstance(event, Notice) and event.is_warning and "proxy" in event.text)
    assert "not understood of the brokers' file: storage.proxy.host: has no counterpart here" in notice.text

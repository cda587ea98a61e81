"""A broker's properties for Aiven's plug-in, backend by backend, and the names that nothing is made of."""

from __future__ import annotations

import json

import pytest

from fetchers.layouts.aiven_backends import from_aiven_properties
from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, UnsupportedFormat

STORAGE = "io.aiven.kafka.tieredstorage.storage."
OPTION = "remote.storage.options."
S3 = {"storage.backend.class": f"{STORAGE}s3.S3Storage", "storage.s3.bucket.name": "tier"}
GCS = {"storage.backend.class": f"{STORAGE}gcs.GcsStorage", "storage.gcs.bucket.name": "tier"}
AZURE = {"storage.backend.class": f"{STORAGE}azure.AzureBlobStorage", "storage.azure.container.name": "tier"}
FILES = {"storage.backend.class": f"{STORAGE}filesystem.FileSystemStorage", "storage.root": "/mnt/tier"}
USUAL = {
    "chunk.size": "4194304", "compression.enabled": "true", "compression.heuristic.enabled": "true",
    "key.prefix.mask": "true", "custom.metadata.fields.include": "REMOTE_SIZE", "fetch.chunk.cache.class": "x",
    "upload.rate.limit.bytes.per.second": "9", "broker.id": "1", "storage.s3.multipart.upload.part.size": "5",
}  # fmt: skip


def mapped(properties: dict[str, str], **more: str) -> tuple[dict[str, str], tuple[str, ...]]:
    found = from_aiven_properties({**properties, **{name.replace("__", "."): value for name, value in more.items()}})
    Config.parse(dict(found.configs))
    return dict(found.configs), found.unmapped


@pytest.mark.parametrize(
    ("properties", "url"), [(S3, "s3://tier"), (GCS, "gs://tier"), (AZURE, "az://tier"), (FILES, "/mnt/tier")]
)
def test_the_least_of_each_backend(properties: dict[str, str], url: str) -> None:
    configs, unmapped = mapped({**properties, **USUAL})
    assert (configs["remote.storage.url"], configs["remote.storage.layout"]) == (url, "aiven")
    assert unmapped == ()
    needed = next(name for name in properties if name != "storage.backend.class")
    for lacking in (needed, "storage.backend.class"):
        with pytest.raises(ConfigError, match=lacking):
            mapped({name: value for name, value in properties.items() if name != lacking})


def test_s3() -> None:
    configs, unmapped = mapped(
        S3,
        storage__aws__access__key__id="id",
        storage__aws__secret__access__key="s3cret",
        storage__aws__session__token="t0ken",
        storage__s3__endpoint__url="http://minio:9000",
        storage__s3__region="eu-west-1",
        storage__s3__path__style__access__enabled="TRUE",
        storage__aws__certificate__check__enabled="false",
        key__prefix="tiered/",
    )
    assert unmapped == ()
    assert configs == {
        "remote.storage.url": "s3://tier",
        "remote.storage.layout": "aiven",
        "remote.storage.layout.key.prefix": "tiered/",
        f"{OPTION}key": "id",
        f"{OPTION}secret": "s3cret",
        f"{OPTION}token": "t0ken",
        f"{OPTION}endpoint_url": "http://minio:9000",
        f"{OPTION}client_kwargs": json.dumps({"region_name": "eu-west-1", "verify": False}),
        f"{OPTION}config_kwargs": json.dumps({"s3": {"addressing_style": "path"}}),
    }


def test_what_s3_says_that_is_not_for_us() -> None:
    _, unmapped = mapped(
        S3,
        storage__aws__credentials__file="/x",
        storage__aws__credentials__provider__class="x.Y",
        storage__s3__storage__class="DEEP_ARCHIVE",
        storage__proxy__host="h",
        storage__key__prefix="wrong/",
    )
    assert [text.partition(":")[0] for text in unmapped] == [
        "storage.aws.credentials.file",
        "storage.aws.credentials.provider.class",
        "storage.s3.storage.class",
        "storage.key.prefix",
        "storage.proxy.host",
    ]


@pytest.mark.parametrize(
    ("name", "value", "token"),
    [
        ("json", '{"type": "service_account"}', '{"type": "service_account"}'),
        ("path", "/etc/key.json", "/etc/key.json"),
        ("default", "true", "google_default"),
        ("default", "false", None),
    ],
)
def test_gcs(name: str, value: str, token: str | None) -> None:
    credentials = {f"storage.gcs.credentials.{name}": value, "storage.gcs.endpoint.url": "http://gcs:4443"}
    configs, unmapped = mapped({**GCS, **credentials})
    assert configs.get(f"{OPTION}token") == token
    assert configs[f"{OPTION}endpoint_url"] == "http://gcs:4443"
    assert unmapped == ()


def test_azure() -> None:
    configs, _ = mapped(AZURE, storage__azure__account__name="me")
    assert {configs[f"{OPTION}{name}"] for name in ("account_name", "anon")} == {"me", "false"}
    for name, option in (("account__key", "account_key"), ("sas__token", "sas_token")):
        configs, unmapped = mapped(
            AZURE, **{f"storage__azure__{name}": "s3cret", "storage__azure__endpoint__url": "https://blobs.example/"}
        )
        assert configs[OPTION + option] == "s3cret"
        assert configs[f"{OPTION}account_host"] == "blobs.example"
        assert f"{OPTION}anon" not in configs
        assert unmapped == ()
    connection = {"storage.azure.connection.string": "AccountName=me", "storage.azure.endpoint.url": "http://x:1/me"}
    configs, unmapped = mapped({**AZURE, **connection})
    assert (configs[f"{OPTION}connection_string"], unmapped) == ("AccountName=me", ())
    for endpoint in ("http://x:1/me", "https://x/me", "https://u:s3cret@x", "https://[x", "https://x[1]/"):
        configs, unmapped = mapped(AZURE, storage__azure__endpoint__url=endpoint)
        assert [text.partition(":")[0] for text in unmapped] == ["storage.azure.endpoint.url"]
        assert "s3cret" not in str(unmapped)
        assert f"{OPTION}account_host" not in configs


def test_keys() -> None:
    keys = {
        "encryption.enabled": "true",
        "encryption.key.pair.id": "k2",
        "encryption.key.pairs": "k1, k2,",
        "encryption.key.pairs.k1.private.key.file": "/1",
        "encryption.key.pairs.k1.public.key.file": "/1.pub",
        "encryption.key.pairs.k2.private.key.file": "/2",
    }
    configs, unmapped = mapped({**FILES, **keys})
    before = "remote.storage.layout.encryption.key.pairs."
    assert {name: value for name, value in configs.items() if name.startswith(before)} == {
        f"{before}k1.private.key.file": "/1",
        f"{before}k2.private.key.file": "/2",
    }
    assert unmapped == ()
    with pytest.raises(ConfigError, match=r"pairs\.k2\.private"):
        mapped({**FILES, **{name: value for name, value in keys.items() if not name.endswith("k2.private.key.file")}})
    assert len(mapped({**FILES, **keys, "encryption.enabled": "false"})[0]) == 2


def test_what_cannot_be_read_at_all() -> None:
    with pytest.raises(UnsupportedFormat, match="Iceberg"):
        mapped(S3, segment__format="iceberg")
    with pytest.raises(ConfigError, match="none of AzureBlobStorage"):
        mapped({"storage.backend.class": "com.example.OwnStorage"})

"""The shown values of a configuration: only values that are known to be harmless."""

from __future__ import annotations

import json

import pytest

from remote_fetch.cli.masked import masked, masked_url

OPTION = "remote.storage.options."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/mnt/tier", "/mnt/tier"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://me:s3cret@bucket/p", "s3://bucket/p"),
        ("in abfs://c@account.dfs.core.windows.net/p", "in abfs://c@account.dfs.core.windows.net/p"),
        ("https://h/p?X-Amz-Signature=s3cret", "https://h/p?***"),
        ("https://s3cret@h:1/p?a=s3cret#s3cret", "https://h:1/p?***"),
        ("az://c, https://u:s3cret@h/?sig=s3cret", "az://c, https://h/?***"),
        ("https://u:p@ss:s3cret@h/x", "https://h/x"),
        ("s3://AKIA:s3c/ret@bucket/p", "s3://***"),
        ("https://u:s3c?ret@h/p", "https://***?***"),
        ("https://h/p#s3cret", "https://h/p?***"),
        ("https://u:s3c ret@h/p", "***"),
        ("//u:s3cret@h/p", "***"),
    ],
)
def test_urls(text: str, shown: str) -> None:
    assert masked_url(text) == shown
    assert masked("remote.storage.url", text) == shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("secret", "s3cret", "***"),
        ("key", "AKIA", "***"),
        ("token", '{"private_key": "s3cret"}', "***"),
        ("of.tomorrow", "s3cret", "***"),
        ("anon", "true", "true"),
        ("endpoint_url", "http://u:s3cret@minio:9000", "http://minio:9000"),
        ("client_kwargs", '{"region_name": "x", "aws_secret_access_key": "s3cret"}', None),
        ("config_kwargs", '{"s3": {"addressing_style": "path"}, "proxies": {"http": "http://u:s3cret@p"}}', None),
        ("client_kwargs", "{s3cret", "***"),
        ("client_kwargs", "password=s3cret", "***"),
        ("client_kwargs", '[{"password": "s3cret"}]', "***"),
        ("client_kwargs", ' {"password": "s3cret", "region_name": "x"}', '{"password": "***", "region_name": "x"}'),
        ("client_kwargs", '{"proxies": ["http://u:s3cret@p"], "s3": [["s3cret"]], "verify": ["s3cret"]}', None),
        ("client_kwargs", '{"config_kwargs": [{"password": "s3cret"}], "timeout": 5}', None),
        ("endpoint_url", ' {"password": "s3cret"}', "***"),
        ("proxy", "u:s3cret@proxy:3128", "***"),
        ("proxy", "proxy:3128", "proxy:3128"),
        (
            "connection_string",
            "AccountName=me;AccountKey=s3cret==;BlobEndpoint=http://h:1/me?sig=s3cret;SharedAccessSignature=sv=1&sig=s3cret",
            "AccountName=me;AccountKey=***;BlobEndpoint=http://h:1/me?***;SharedAccessSignature=***",
        ),
        ("connection_string", "s3cret", "***"),
        ("connection_string", "account key=s3cret;Password=s3cret", "account key=***;Password=***"),
    ],
)
def test_options(name: str, value: str, shown: str | None) -> None:
    found = masked(OPTION + name, value)
    assert "s3cret" not in found
    if shown is not None:
        assert found == shown
    else:
        assert json.loads(found).keys() == json.loads(value).keys()


def test_each_url_of_a_list_is_masked() -> None:
    roots = "s3://me:s3cret@b/tier,https://u:s3cret@h/p?sig=s3cret,https://s3cret@h/x"
    assert masked("remote.storage.roots", roots) == "s3://b/tier,https://h/p?***,https://h/x"
    assert masked("remote.storage.roots", "s3://me:s3c,ret@b,/mnt/x") == "s3://b,/mnt/x"
    assert masked("schema.registry.url", "http://a,http://u:s3cret@b") == "http://a,http://b"


def test_options_of_a_layout_that_is_not_of_this_package_are_masked() -> None:
    assert masked("remote.storage.layout.encryption.key", "s3cret") == "***"
    assert masked("remote.storage.layout.file.key", "s3cret") == "***"
    for name in ("key.prefix", "template", "md5.bits", "file.log", "encryption.key.pairs.a.private.key.file"):
        assert masked(f"remote.storage.layout.{name}", "shown") == "shown"


def test_the_rest() -> None:
    assert masked("remote.locator.sasl.password", "s3cret") == "***"
    assert masked("remote.locator.bootstrap.servers", "b:9092") == "b:9092"
    assert masked("remote.locator.snapshot.file", "/f") == "/f"
    assert masked("remote.locator.url", "https://me:s3cret@h:1/") == "https://h:1/"
    assert masked("remote.locator.topic", "metadata") == "metadata"
    assert masked("remote.locator.cache", "s3://me:s3cret@b/c?k=s3cret") == "s3://b/c?***"
    assert masked("remote.storage.layout.key.prefix", "tiered/") == "tiered/"
    assert masked("fetch.remote.read.timeout.ms", 5000) == "5000"
    assert masked("sasl.password", "s3cret") == "***"
    assert masked("bootstrap.servers", "b:9092") == "b:9092"
    assert masked("bootstrap.servers", "SASL_SSL://u:s3cret@h:9092") == "SASL_SSL://h:9092"
    assert masked("key.password", "s3cret") == "***"
    assert masked("value.format", "json") == "json"

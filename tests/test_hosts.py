"""Hosts that credentials may be sent to without TLS, and URLs as messages have them."""

from __future__ import annotations

import pytest

from remote_fetch.hosts import is_http_url, is_loopback, is_path, shown_url
from tests.cases import each_of

CASES = {
    "127.0.0.1": True,
    "127.9.9.9": True,
    "::1": True,
    "localhost": True,
    "0.0.0.0": False,
    "::": False,
    "10.0.0.1": False,
    "localhost.example": False,
    "127.0.0.1.example": False,
    "": False,
}


@each_of("host", CASES, ids=str)
def test_only_this_machine_is_loopback(host: str) -> None:
    assert is_loopback(host) is CASES[host]


URLS = {
    "/a/path@home": "/a/path@home",
    "s3://bucket/tier?x=s3cret": "s3://bucket/tier",
    "sftp://me:s3cret@host:2222/tier": "sftp://host:2222/tier",
    "https://u:p@ss:s3cret@h/x": "https://h/x",
    "s3://bucket/x@y": "s3://bucket/x@y",
    "sftp://me@host/x@y": "sftp://host/x@y",
    "https://h/tier#sig=s3cret": "https://h/tier",
    # The secret has a character that ends the host.
    "s3://AKIA:s3c/ret@bucket/tier": "s3://***",
    "https://u:s3c?ret@h/tier": "https://***",
    "https://u:s3c#ret@h/tier": "https://***",
    "https://u:p@s3c/ret@h/tier": "https://***",
    "zip://x/y.zip::s3://u:s3cret@bucket/tier": "zip://***",
    "abfs://container@acct.dfs.core.windows.net/tier?sig=s3cret": "abfs://container@acct.dfs.core.windows.net/tier",
    "ABFSS://container@acct/": "ABFSS://container@acct/",
    "abfs://me:s3cret@acct/": "abfs://acct/",
    "http://": "http://",
}


@each_of("url", URLS, ids=str)
def test_a_url_is_shown_with_port_and_container_and_without_secrets(url: str) -> None:
    assert shown_url(url) == URLS[url]


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("/mnt/a?b", True), ("/mnt/a://b", True), ("file:///mnt/a", True), ("orders/7.log", True),
        ("file://host/a", False), ("s3://b/a", False),
    ],
)  # fmt: skip
def test_a_path_is_no_url_of_a_server(url: str, is_one: bool) -> None:
    assert is_path(url) is is_one


@each_of(
    "url, is_one",
    [
        ("http://h", True), ("https://me:s3cret@[::1]:8443/x?y#z", True), ("HTTP://h", True), ("ftp://h", False),
        ("h:80", False), ("http://", False), ("http://:80", False), ("http://h:0", False), ("http://h:65536", False),
        ("http://h:x", False), ("http://[::1", False), ("", False),
    ],
)  # fmt: skip
def test_a_url_of_http_has_a_host_and_a_port(url: str, is_one: bool) -> None:
    assert is_http_url(url) is is_one

"""Signed URLs of a session's fetcher: what is refused at the start, what of a segment, and which options are told."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError, StorageUnavailable, UnsupportedFormat
from remote_fetch.model import OBJECT_KINDS, RemoteLogSegmentMetadata
from remote_fetch.session.vending import Signed, Vendor
from tests.cases import each_of
from tests.service.fakes import SigningBucket, log_with_aborts

SECRET = "s1gned"


def vendor(fetcher: Any, **config: str) -> Vendor:
    return Vendor(fetcher, Config.parse({f"remote.storage.{name}": value for name, value in config.items()}))


@pytest.fixture
def bucket() -> SigningBucket:
    return SigningBucket(log_with_aborts(2).tiered())


def test_names_that_show_their_segment(bucket: SigningBucket) -> None:
    made = vendor(bucket)
    made.check()
    signed = made.sign(bucket.at(0), ("log", "offset"), 60)
    assert (len(signed.urls), signed.refused) == (2, None)
    assert "signature" not in repr(signed)


def test_the_url_of_another_object_is_not_handed_out(bucket: SigningBucket) -> None:
    own, other = bucket.at(0), bucket.at(1)
    honest = bucket.name_of
    bucket.name_of = lambda metadata, kind: honest(other if kind == "offset" else own, kind)
    signed = vendor(bucket).sign(own, ("log", "offset"), 60)
    assert list(signed.urls) == [honest(own, "log")]
    assert "does not show that it belongs" in (signed.refused or "")


@each_of("name", ["{start}.{kind}", "all/{kind}", "{topic}/{kind}", "../{id}/{topic_id}.{kind}"])
def test_names_that_do_not(name: str) -> None:
    bucket = SigningBucket()

    def named(metadata: RemoteLogSegmentMetadata, kind: str) -> str:
        partition = metadata.topic_id_partition
        return name.format(
            start=metadata.start_offset, kind=kind, topic=partition.topic, id=metadata.segment_id.id,
            topic_id=partition.topic_id,
        )  # fmt: skip

    bucket.name_of = named
    with pytest.raises(ConfigError, match="no access can be vended"):
        vendor(bucket).check()


class Located:
    """A signer that takes the name from custom metadata, and signs none without it."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def sign(self, metadata: RemoteLogSegmentMetadata, kinds: Collection[str], expires_s: int) -> Mapping[str, str]:
        if metadata.custom_metadata is None:
            raise UnsupportedFormat("the segment has no custom metadata")
        name = self.prefix + metadata.custom_metadata.decode()
        return {name: f"https://x/{name}?{SECRET}"}


def test_names_from_custom_metadata() -> None:
    vendor(Located()).check()
    with pytest.raises(ConfigError, match="no access can be vended"):
        vendor(Located("%2e%2e/")).check()


def test_a_segment_without_names_gets_a_reason(bucket: SigningBucket) -> None:
    assert vendor(Located()).sign(bucket.at(0), OBJECT_KINDS, 60) == Signed({}, "the segment has no custom metadata")


def test_a_store_that_is_away_is_raised(bucket: SigningBucket) -> None:
    def away(metadata: RemoteLogSegmentMetadata, kind: str) -> str:
        raise StorageUnavailable("away")

    bucket.name_of = away
    with pytest.raises(StorageUnavailable):
        vendor(bucket).sign(bucket.at(0), ("log",), 60)


def test_a_fetcher_that_does_not_sign() -> None:
    made = vendor(object())
    with pytest.raises(ConfigError, match="the fetcher object cannot sign"):
        made.check()
    with pytest.raises(ConfigError, match="cannot sign"):
        made.sign(SigningBucket(log_with_aborts(1).tiered()).at(0), ("log",), 60)


def test_options_that_hold_secrets_are_not_told() -> None:
    made = vendor(
        SigningBucket(),
        layout="aiven",
        **{
            "layout.key.prefix": "tier/",
            "layout.encryption.key.pairs.one.private.key.file": "/keys/one.pem",
            "layout.my.password": "x",
            "layout.api.Token": "x",
        },
    )
    assert made.layout() == ("aiven", {"key.prefix": "tier/"})


@each_of(
    "name",
    [
        "sas", "api.key", "apiKey", "account_key", "auth", "tier.authorization", "connection.string", "passwd",
        "basic.auth.user.info", "auth.header", "bearer", "jwt", "sas.url", "cert.pem", "pass", "my.key.prefix",
    ],
)  # fmt: skip
def test_options_of_other_layouts_that_may_hold_secrets_are_not_told(name: str) -> None:
    made = vendor(SigningBucket(), layout="plain", **{"layout.template": "x", f"layout.{name}": "s3cret"})
    assert made.layout() == ("plain", {"template": "x"})

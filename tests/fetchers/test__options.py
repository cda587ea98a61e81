"""The value that the text of an option becomes, and values that it never becomes."""

from __future__ import annotations

from typing import Any

import pytest

from fetchers._options import OPTIONS, Timeouts, options_of, timeouts_of, with_defaults
from remote_fetch.errors import ConfigError
from tests.cases import each_of


@each_of(
    ("name", "text", "value"),
    [
        ("anon", "true", True),
        ("use_ssl", "False", False),
        ("version_aware", "false", False),
        ("requester_pays", "true", True),
        ("max_concurrency", "10", 10),
        ("port", "-1", -1),
        ("timeout", "2.5", 2.5),
        ("loop", "null", None),
        ("endpoint_url", "http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        (
            "client_kwargs",
            '{"region_name": "eu-west-1", "verify": false}',
            {"region_name": "eu-west-1", "verify": False},
        ),
        ("config_kwargs", '{"s3": {"addressing_style": "path"}}', {"s3": {"addressing_style": "path"}}),
        ("token", '{"type": "service_account"}', {"type": "service_account"}),
        ("hosts", "[1, 2]", [1, 2]),
        ("anything", '"12"', "12"),
        # Identities and secrets are what they are.
        ("key", "0042", "0042"),
        ("secret", "1234567890", "1234567890"),
        ("password", "true", "true"),
        ("account_key", "12", "12"),
        ("project", "123456", "123456"),
        ("token", "{not json", "{not json"),
        ("sas_token", "?sv=2024&sig=x", "?sv=2024&sig=x"),
        # No number that would not come back as the same text.
        ("block", "007", "007"),
        ("block", "1e5", "1e5"),
        ("block", "1" * 40, "1" * 40),
        ("block", "", ""),
        ("block", "[" * 100_000, "[" * 100_000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values(name: str, text: str, value: Any) -> None:
    found = options_of({OPTIONS + name: text, "remote.storage.url": "s3://b"})
    assert found == {name: value}
    assert type(found[name]) is type(value)


@pytest.mark.usefixtures("shipped_limits")
def test_both_timeouts_in_seconds() -> None:
    assert timeouts_of({}) == Timeouts(1.0, 5.0)
    both = {"fetch.remote.connect.timeout.ms": "250", "fetch.remote.read.timeout.ms": "1500"}
    assert timeouts_of(both) == Timeouts(0.25, 1.5)
    with pytest.raises(ConfigError):
        timeouts_of({"fetch.remote.read.timeout.ms": "soon"})


def test_what_is_given_wins_also_within_nested_objects() -> None:
    given = {"config_kwargs": {"retries": {"mode": "standard"}, "region": "x"}, "anon": True, "deep": 1}
    defaults = {"config_kwargs": {"retries": {"mode": "legacy", "max_attempts": 0}}, "anon": False, "deep": {"a": 1}}
    assert with_defaults(given, defaults) == {
        "config_kwargs": {"retries": {"mode": "standard", "max_attempts": 0}, "region": "x"},
        "anon": True,
        "deep": 1,
    }
    assert given["config_kwargs"] == {"retries": {"mode": "standard"}, "region": "x"}

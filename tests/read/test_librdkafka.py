"""Keys that are not ours are librdkafka's to judge."""

from __future__ import annotations

from typing import Any

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.read.librdkafka import check_properties


def test_what_it_knows() -> None:
    check_properties({})
    check_properties({"session.timeout.ms": 6000, "bootstrap.servers": "nowhere:1", "debug": "all"})


@pytest.mark.parametrize("properties", [{"no.such.key": "1"}, {"session.timeout.ms": "soon"}, {"on_commit": 3}])
def test_what_it_refuses(properties: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="librdkafka refuses the configuration"):
        check_properties(properties)


def test_the_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.key") as raised:
        check_properties({"no.such.key": "1"})
    assert "configuration.md" in str(raised.value)

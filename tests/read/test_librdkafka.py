"""Keys that are not ours are librdkafka's to judge."""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.parametrize("mechanism", ["sasl.mechanisms", "sasl.mechanism"])
def test_no_callback_is_called(mechanism: str) -> None:
    """A token server that fails now must not refuse a consumer, and no token is wasted."""
    calls: list[object] = []

    def fails(*args: object) -> None:
        calls.append(args)
        raise OSError("token server: 503")

    callbacks = dict.fromkeys(("oauth_cb", "error_cb", "stats_cb", "throttle_cb", "on_commit"), fails)
    check_properties({"security.protocol": "sasl_plaintext", mechanism: "OAUTHBEARER", **callbacks})
    assert calls == []


def test_the_rest_is_checked_beside_an_oauth_callback() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.key"):
        check_properties({"sasl.mechanisms": "OAUTHBEARER", "oauth_cb": print, "no.such.key": "1"})


PATCHED = """
import confluent_kafka, confluent_kafka.cimpl
from remote_fetch import RemoteConsumer

class Patched(RemoteConsumer):
    made = 0
    def __init__(self, conf):
        Patched.made += 1
        super().__init__({**conf, "fetch.remote.enabled": True, "remote.storage.url": "/tmp"})

confluent_kafka.Consumer = Patched
conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "client.id": "me", "log_level": 0}
consumer = confluent_kafka.Consumer(conf)
cluster = consumer._remote.session.cluster
assert type(cluster.catcher()) is confluent_kafka.cimpl.Consumer
consumer.close()
print(Patched.made)
"""


def test_a_class_that_stands_for_the_clients_does_not_get_inside() -> None:
    """Tracers and patches of a site replace `confluent_kafka.Consumer`."""
    run = subprocess.run([sys.executable, "-c", PATCHED], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "1"), run.stderr

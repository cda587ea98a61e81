"""The clients that this package opens: of the C module's class even if the public one is replaced; configuration."""

from __future__ import annotations

import subprocess
import sys

from remote_fetch.kafka_clients import Consumer
from remote_fetch.locate.client_properties import NO_LONG_POLL, PROBE, admin_properties, consumer_properties
from remote_fetch.model import IsolationLevel

LEVEL = IsolationLevel.READ_UNCOMMITTED

PATCHED = """
import confluent_kafka

class Traced(confluent_kafka.Consumer):
    pass

confluent_kafka.Consumer = Traced  # as a tracer does, before anything else is loaded
from remote_fetch import RemoteConsumer

made = []

class Patched(RemoteConsumer):
    def __init__(self, configuration):
        made.append(self)
        super().__init__({**configuration, "fetch.remote.enabled": True, "remote.storage.url": "memory://tier"})

confluent_kafka.Consumer = Patched  # as a site does that cannot change the class which a framework makes
consumer = confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
import remote_fetch.locate.clients, remote_fetch.locate.epoch_prober, remote_fetch.locate.metadata_replay
import remote_fetch.session.broker
for module in (
    remote_fetch.locate.clients,
    remote_fetch.locate.epoch_prober,
    remote_fetch.locate.metadata_replay,
    remote_fetch.session.broker,
):
    assert not issubclass(module.Consumer, Traced), module
assert type(consumer._remote.session.brokers.cluster.catcher()) is module.Consumer
consumer.close()
print(len(made))
"""


def test_a_replaced_class_makes_no_client_inside() -> None:
    done = subprocess.run([sys.executable, "-c", PATCHED], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout.strip(), done.returncode) == ("1", 0), done.stderr


def test_a_consumer_neither_commits_nor_resets_nor_makes_topics_whatever_the_user_set() -> None:
    given = {
        "bootstrap.servers": "b:1",
        "group.id": "mine",
        "enable.auto.commit": True,
        "auto.offset.reset": "latest",
        "allow.auto.create.topics": True,
        "isolation.level": "read_committed",
    }
    found = consumer_properties(given, LEVEL)
    assert found["group.id"] == "mine"
    assert found["isolation.level"] == "read_uncommitted"
    assert found["auto.offset.reset"] == "error"
    assert not any(
        found[name] for name in ("enable.auto.commit", "enable.auto.offset.store", "allow.auto.create.topics")
    )
    Consumer(found).close()
    assert consumer_properties({}, LEVEL)["group.id"] == "remote-fetch"


def test_the_queue_backoff_is_short_unless_configured() -> None:
    assert consumer_properties({}, LEVEL)["fetch.queue.backoff.ms"] == 10
    assert consumer_properties({"fetch.queue.backoff.ms": 700}, LEVEL)["fetch.queue.backoff.ms"] == 700


def test_a_response_may_be_as_large_as_a_batch_is_unless_configured() -> None:
    """A broker gave a record of 101.5 MB, and librdkafka's default ended the read with _BAD_MSG of another request."""
    found = consumer_properties({"fetch.max.bytes": 2**31 - 1 - 512}, LEVEL)
    Consumer(found).close()  # librdkafka demands 512 bytes more than fetch.max.bytes
    assert found["receive.message.max.bytes"] == 2**31 - 1
    given = {"receive.message.max.bytes": 200_000_000}
    assert consumer_properties(given, LEVEL)["receive.message.max.bytes"] == 200_000_000


def test_an_administrators_client_gets_nothing_that_only_a_consumer_knows() -> None:
    given = {"bootstrap.servers": "b:1", "group.id": "mine", "fetch.min.bytes": 1, "sasl.username": "u"}
    fixed = {"allow.auto.create.topics": False}
    ours = {"log_level": 2, "reconnect.backoff.ms": 20, **fixed}
    assert admin_properties(given) == {**ours, "bootstrap.servers": "b:1", "sasl.username": "u"}
    given = {"log_level": 6, "reconnect.backoff.ms": 70}
    assert admin_properties({**given, "allow.auto.create.topics": True}) == given | fixed
    of_tls = {"enable.ssl.certificate.verification": False, "enable.sasl.oauthbearer.unsecure.jwt": True}
    assert admin_properties({**of_tls, "enable.auto.commit": False, "enable.partition.eof": True}) == ours | of_tls
    assert consumer_properties(given, LEVEL)["reconnect.backoff.ms"] == 70


def test_an_admin_client_makes_no_statistics() -> None:
    """It is not polled, so they would wait in memory for ever."""
    given = {"bootstrap.servers": "b:1", "statistics.interval.ms": 1000, "stats_cb": print}
    assert not admin_properties(given).keys() & {"statistics.interval.ms", "stats_cb"}
    consumer = consumer_properties(given, IsolationLevel.READ_COMMITTED)
    assert (consumer["statistics.interval.ms"], consumer["stats_cb"]) == (1000, print)
    for seldom_polled in (NO_LONG_POLL, PROBE):
        assert {**consumer, **seldom_polled}["statistics.interval.ms"] == 0

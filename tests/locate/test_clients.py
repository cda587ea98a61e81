"""Whatever `confluent_kafka.Consumer` is replaced by, the clients inside are of the C module's class."""

from __future__ import annotations

import subprocess
import sys

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
import remote_fetch.locate.cluster, remote_fetch.locate.epoch_prober, remote_fetch.locate.metadata_replay
import remote_fetch.read.broker
for module in (
    remote_fetch.locate.cluster,
    remote_fetch.locate.epoch_prober,
    remote_fetch.locate.metadata_replay,
    remote_fetch.read.broker,
):
    assert module.Consumer is confluent_kafka.cimpl.Consumer, module
assert type(consumer._remote.session.cluster.catcher()) is confluent_kafka.cimpl.Consumer
consumer.close()
print(len(made))
"""


def test_a_replaced_class_makes_no_client_inside() -> None:
    done = subprocess.run([sys.executable, "-c", PATCHED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("1", 0), done.stderr

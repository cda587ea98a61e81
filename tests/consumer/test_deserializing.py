"""RemoteDeserializingConsumer without a broker."""

from __future__ import annotations

import subprocess
import sys
from typing import assert_type

from remote_fetch import RemoteDeserializingConsumer


def test_it_is_generic_in_keys_and_values_as_its_parent_is() -> None:
    """mypy checks the types, the test checks the rest."""
    consumer = RemoteDeserializingConsumer[str, int]({"group.id": "g"})
    assert type(consumer) is RemoteDeserializingConsumer
    message = consumer.poll(0)
    assert message is None or assert_type(message.deserialized_value(), int | None)
    consumer.close()


# As ddtrace does it: a subclass that is not generic, with a wrapper around an inherited method.
REPLACED = """
import confluent_kafka

class Traced(confluent_kafka.DeserializingConsumer):
    polled = []

inherited = Traced.poll

def poll(self, *args):
    Traced.polled.append(args)
    return inherited(self, *args)

Traced.poll = poll
confluent_kafka.DeserializingConsumer = Traced

from remote_fetch import RemoteConsumer, RemoteDeserializingConsumer

RemoteConsumer.poll = lambda self, timeout: print("RemoteConsumer polls")
consumer = RemoteDeserializingConsumer[str, int]({"group.id": "g"})
assert isinstance(consumer, Traced) and isinstance(consumer, RemoteConsumer)
consumer.poll(0)
consumer.close()
print(Traced.polled)
"""


def test_a_tracer_that_replaces_the_parent_wraps_polls_of_the_store() -> None:
    done = subprocess.run([sys.executable, "-c", REPLACED], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["RemoteConsumer polls", "[(0,)]"]

"""A client ends in a thread of Python, wherever its last reference goes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ENDS = """
import gc, threading, time, weakref
gc.disable()
from remote_fetch import RemoteConsumer, kafka_clients
from remote_fetch.kafka_clients import AdminClient, Consumer, Producer

kafka_clients._PAUSES = 20

def end_a_client(kind, way):
    held, has_ended, threads = [], threading.Event(), []

    def end(*_):  # in the client's own thread
        if held:
            time.sleep(0.1)
            held.clear()
            while not has_ended.is_set():  # a thread of RemoteConsumer may hold it a moment longer
                gc.collect()
                has_ended.wait(0.1)
            threads.append(threading.current_thread())

    def token(_):
        end()
        return "token", time.time() + 1

    def make():
        properties = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
        if kind is AdminClient:
            client = kind(properties)
            client.describe_cluster(request_timeout=0.5).add_done_callback(end)
        else:
            properties |= {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
            properties |= {"group.id": "g"} if issubclass(kind, Consumer) else {}
            is_remote = {"fetch.remote.enabled": True, "remote.storage.url": "memory://tier"}
            client = kind(properties | (is_remote if kind is RemoteConsumer else {}))
        weakref.finalize(client, has_ended.set)
        held.append([client])
        if way == "in a cycle":
            held[0].append(held[0])
        elif way == "holds itself":
            client.itself = client

    make()
    assert has_ended.wait(300), "the client has not ended"
    while not threads:
        time.sleep(0.01)
    assert isinstance(threads[0], threading._DummyThread)
    if way == "holds itself":  # the collector told of its end before the client was handed over
        has_ended.clear()
        for known in gc.get_objects():
            if type(known) is kind:
                weakref.finalize(known, has_ended.set)
        del known
        assert has_ended.wait(300), "the client still holds itself"

for kind in (AdminClient, Consumer, Producer, RemoteConsumer):
    for way in ("by its last reference", "in a cycle", "holds itself"):
        end_a_client(kind, way)
    print(kind.__name__, end=" ")
threading.last = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})  # it ends when modules are gone
"""

DROPS = """
import threading, time, weakref
from remote_fetch import kafka_clients
from remote_fetch.arrow import _Batches
from remote_fetch.session.session import Session

kafka_clients._CLOSE_S = 0.1
held, has_ended = [], threading.Event()

def token(_):  # in the own thread of the consumer
    held.clear()
    return "token", time.time() + 1

properties = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "remote.storage.url": "memory://tier"}
properties |= {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
session = Session.open(properties)
session.brokers.cluster._is_unchecked = False
weakref.finalize(session.brokers.cluster.catcher(), has_ended.set)
held.append(_Batches(session, iter(())))
del session
assert has_ended.wait(300), "the consumer has not ended"
"""


def test_a_stream_is_dropped_in_its_client_s_own_thread() -> None:
    """Its session closes the consumer there, and librdkafka would abort the process."""
    done = subprocess.run([sys.executable, "-c", DROPS], capture_output=True, text=True, timeout=600, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


FORKS = """
import gc, os, signal, sys
from remote_fetch.arrow import _Batches
from remote_fetch.kafka_clients import AdminClient, Consumer
from remote_fetch.session.broker import _give_back
from remote_fetch.session.session import Session

properties = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
clients = [Consumer({**properties, "group.id": "g"}) for _ in range(3)] + [AdminClient(properties)]
for consumer in clients[:3]:
    consumer.subscribe(["t"])
session = Session.open({**properties, "remote.storage.url": "memory://tier"})
session.brokers.cluster._is_unchecked = False
catcher = session.brokers.cluster.catcher()

def reading():  # as a stream that is in the middle of what the broker gives
    try:
        yield 1
    finally:
        _give_back(catcher)

stream = _Batches(session, reading())
next(stream)
child = os.fork()
if child == 0:
    signal.alarm(200)
    clients.pop(0).close()
    clients.pop(0)
    del stream, session
    gc.collect()
    sys.exit(7)  # one more client ends with the interpreter
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_ends_no_client_of_its_parent() -> None:
    """librdkafka would wait for threads that are in the parent process, or abort the child."""
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("7\n", "", 0)


@pytest.mark.slow
def test_the_last_reference_goes_in_the_client_s_own_thread() -> None:
    """librdkafka would abort the process. Each client ends by its last reference, and by Python's collector."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=1200, check=False)
    ended = "AdminClient Consumer Producer RemoteConsumer"
    assert (done.stdout.strip(), done.stderr, done.returncode) == (ended, "", 0)

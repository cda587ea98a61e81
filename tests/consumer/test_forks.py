"""A consumer that was assigned before a fork: in the child it gives no record, as the parent class, and does not hang.

Rules of the file:

- A separate process makes the fork. It has no threads except the consumer's.
- There is no broker. So the child would hand partitions over, and librdkafka cannot do that in a child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import gc, os, signal, sys, time, weakref
    from confluent_kafka import TopicPartition
    from remote_fetch import RemoteConsumer

    consumer = RemoteConsumer({
        "bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0, "fetch.remote.enabled": True,
        "remote.storage.url": sys.argv[1],
        "fetch.remote.connect.timeout.ms": 50, "fetch.remote.read.timeout.ms": 50,
    })
    consumer.assign([TopicPartition("t", number, number) for number in range(8)])
    gc.disable()  # as if another thread was in the middle of `consume`
    consumer._remote.merge.suspends_collector = True
    remote = weakref.ref(consumer._remote)
    child = os.fork()
    if not child:
        print(gc.isenabled(), flush=True)
        given = [consumer.poll(0.1) for _ in range(5)] + consumer.consume(5, 0.1)
        consumer.remote_metrics()
        print([message for message in given if message is not None and message.error() is None], flush=True)
        if not os.fork():
            gc.collect()  # it would close the session, whose threads are not there
            os._exit(remote() is None)
        os._exit(7 + os.waitstatus_to_exitcode(os.wait()[1]))
    deadline_s = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline_s:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        sys.exit("the child hangs")
    assert os.waitstatus_to_exitcode(ended[1]) == 7
    consumer.poll(0.1)
    print(consumer.remote_metrics()["remote-fetch-fallbacks-total"] >= 0, flush=True)
    consumer.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_gets_no_record_and_does_not_hang(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n[]\nTrue\n"), done.stderr

"""`remote-fetch cat` with a broker behaves like kcat: it can begin at the end, and follows the log without -e."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from tests.own_processes import killed_after
from tests.rig import topics
from tests.rig.rig import Rig

_TIMEOUT_S = 150


def cat(rig: Rig, topic: str, *argv: str) -> list[str]:
    common = ["-b", rig.bootstrap, "--url", str(rig.remote), "-t", topic, "-X", "log_level=0", "-q"]
    return [sys.executable, "-m", "remote_fetch", "cat", *common, *argv]


def test_following(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    """The stream has the history from the tier, then records written during the read, up to a count."""
    topic = new_topic("follow")
    topics.make_tiered(rig_43, topic, 40)
    command = cat(rig_43, topic, "-J", "--binary", "base64", "-c", "60")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, killed_after(_TIMEOUT_S, process):
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline())["offset"] for _ in range(40)]
        topics.produce(rig_43, topic, 30, seed=1)
        rest = [json.loads(line)["offset"] for line in process.stdout]
        assert process.wait(_TIMEOUT_S) == 0
    assert first + rest == list(range(60))


def test_the_last_few_and_the_end(rig_43: Rig, new_topic: Callable[[str], str]) -> None:
    topic = new_topic("tail")
    topics.make_tiered(rig_43, topic, 20)
    topics.set_config(rig_43, topic, local_retention_ms=-2)
    topics.produce(rig_43, topic, 10, seed=1)
    for argv, offsets in (
        (("-o", "-5", "-e"), range(25, 30)),
        (("-o", "end", "-e"), ()),
        (("-o", "beginning", "-e"), range(30)),
    ):
        done = subprocess.run(
            cat(rig_43, topic, "-f", "%o\n", *argv), capture_output=True, timeout=_TIMEOUT_S, check=True
        )
        assert [int(line) for line in done.stdout.split()] == list(offsets)

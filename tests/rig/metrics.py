"""Reads a broker's own counts of a topic from its JMX beans.

Rules of the file:

- The broker counts, because a client's counters are no proof: a client does not count a fetch whose answer it drops.
- A reading is one run of Kafka's JmxTool, about a second.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass

from tests.rig.node import QUICK_COMPILER, Node
from tests.rig.rig import Rig

__all__ = ["TopicMetrics", "topic_metrics"]

_TIMEOUT_S = 150
_HEAP_MB = 64


@dataclass(frozen=True, slots=True)
class TopicMetrics:
    """The traffic of a topic since the brokers started.

    `bytes_out` counts the record batches in answers to consumers. `remote_fetch_bytes` and `remote_fetch_requests`
    count the part that the brokers read from the tier.
    """

    bytes_out: int = 0
    remote_fetch_bytes: int = 0
    remote_fetch_requests: int = 0

    def __sub__(self, earlier: TopicMetrics) -> TopicMetrics:
        return TopicMetrics(
            self.bytes_out - earlier.bytes_out,
            self.remote_fetch_bytes - earlier.remote_fetch_bytes,
            self.remote_fetch_requests - earlier.remote_fetch_requests,
        )


def topic_metrics(rig: Rig, topic: str) -> TopicMetrics:
    """The counts of all brokers of the rig, added up. They begin at 0 when a broker starts."""
    counts: Counter[str] = Counter()  # a broker makes a bean with its first event; a missing bean counts as 0
    for node in rig.brokers.values():
        counts.update(_counts(node, topic))
    return TopicMetrics(counts["BytesOutPerSec"], counts["RemoteFetchBytesPerSec"], counts["RemoteFetchRequestsPerSec"])


def _counts(node: Node, topic: str) -> dict[str, int]:
    command = [
        *node.java(_HEAP_MB),
        QUICK_COMPILER,
        "org.apache.kafka.tools.JmxTool",
        "--jmx-url",
        f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{node.jmx_port}/jmxrmi",
        "--object-name",
        f"kafka.server:type=BrokerTopicMetrics,topic={topic},*",
        "--attributes",
        "Count",
        "--one-time",
        "--report-format",
        "properties",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"no metrics of {node.folder.name}: {done.stdout}{done.stderr}")
    return dict(_count(line) for line in done.stdout.splitlines() if ":Count=" in line)


def _count(line: str) -> tuple[str, int]:
    """The name and the count of a line like kafka.server:type=...,name=BytesOutPerSec,topic=t:Count=39505"""
    bean, _, count = line.rpartition(":Count=")
    return bean.partition("name=")[2].partition(",")[0], int(count)

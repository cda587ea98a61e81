"""Real Kafka with tiered storage on loopback: one node that is broker and controller, or a controller and brokers.

Rules of the file:

- All files are in one folder.
- The end of the context stops every process, even after an error.
- The tier is a directory that Kafka's LocalTieredStorage writes. The readers under test get only that directory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.rig import secured as security
from tests.rig.artifacts import jars
from tests.rig.certificates import Certificates, make_certificates
from tests.rig.node import Node, new_id
from tests.rig.ports import free_port

__all__ = ["VERSIONS", "Rig", "cluster", "single"]

VERSIONS = tuple(os.environ.get("RIG_KAFKA", "4.3.1 3.9.2").split())
"""The Kafka versions that the proofs run on, the newest first. `RIG_KAFKA` names others, one or two."""

_TIMEOUT_S = 150
_READY = "Initialized topic-based RLMM resources successfully"


def _tiered(version: str, remote: Path, replicas: int) -> dict[str, str]:
    storage_jar = jars(version) / f"kafka-storage-{version}-test.jar"
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(storage_jar),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rsm.config.dir": str(remote),
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(replicas),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "300",
        # The broker's periodic tasks run twice a second, and not about every half minute.
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.segment.delete.delay.ms": "1000",
    }


def _common(data: Path, replicas: int) -> dict[str, str]:
    return {
        "log.dirs": str(data),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
    }


_SASL_USERS = {"reader": "reader-secret", "writer": "writer-secret"}
"""The principals of a rig with access control. A client without SASL is the administrator."""


def _access_control() -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in _SASL_USERS.items())
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        # Kafka's development mode for tokens. It checks their claims, but no signature.
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
    }


class Rig:
    """A running cluster. `bootstrap` is its address, `remote` the directory that it tiers to.

    `passing_topics` has the topics that a shared broker deletes after the test file that made them.
    """

    def __init__(self, version: str, nodes: Mapping[int, Node], listeners: Mapping[int, str], remote: Path) -> None:
        self.version = version
        self.nodes = dict(nodes)
        self.remote = remote
        self.passing_topics: set[str] = set()
        self._listeners = dict(listeners)
        self.sasl_bootstrap: str | None = None
        self.certificates: Certificates | None = None

    def is_at_least(self, *release: int) -> bool:
        """Whether the brokers' version is this one, as (3, 9), or a later one."""
        return tuple(int(number) for number in self.version.split(".")) >= release

    def folder_in_tier(self, topic: str, partition: int, topic_id: str) -> Path:
        """The folder where LocalTieredStorage keeps the segments of a partition. The id is in Kafka's own form."""
        return self.remote / "kafka-tiered-storage" / f"{topic}-{partition}-{topic_id}"

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of the brokers that are running."""
        return ",".join(address for number, address in self._listeners.items() if self.nodes[number].is_running)

    @property
    def brokers(self) -> dict[int, Node]:
        """The nodes that hold partitions."""
        return {number: self.nodes[number] for number in self._listeners}

    def sasl_client(self, user: str) -> dict[str, str]:
        """The client configuration of a principal of a rig with access control."""
        if self.sasl_bootstrap is None:
            raise RuntimeError("this rig has no access control")
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": _SASL_USERS[user],
        }

    def secured_client(self, user: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """The client configuration of a principal of a secured rig."""
        if self.sasl_bootstrap is None or self.certificates is None:
            raise RuntimeError("this rig is not secured")
        return security.client(self.sasl_bootstrap, self.certificates.authority, user, mechanism)

    def start(self) -> None:
        """Start every node and wait until all are up."""
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.wait_started()

    def wait_tier_ready(self) -> None:
        """Wait until each broker, after its first start, has its metadata manager.

        Before that, a broker refuses many requests for the tier, and Kafka 3.9 may forget to delete a topic.
        """
        for node in self.brokers.values():
            self.until("the metadata manager", partial(_has, node.log_file, _READY))

    def restart(self, number: int = 1, *, kill: bool = False) -> None:
        """Stop one node and start it again. Its partitions get a new leader epoch."""
        node = self.nodes[number]
        node.stop(kill=kill)
        node.start()
        node.wait_started()

    def stop(self) -> None:
        """Kill every node. Their data is not needed any more, and a stop by SIGTERM takes up to half a minute."""
        for node in self.nodes.values():
            node.stop(kill=True)

    def until(self, what: str, condition: object, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until `condition()` is true. Raises a TimeoutError with `what` and the end of the broker's log."""
        if not callable(condition):
            raise TypeError("a condition is called")
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                log = next(iter(self.nodes.values())).log_tail()
                raise TimeoutError(f"not within {timeout_s} s: {what}; the broker's log ends:\n{log}")
            time.sleep(0.1)


def _has(file: Path, text: str) -> bool:
    return text in file.read_text(errors="replace")


@contextmanager
def single(
    folder: Path,
    version: str = VERSIONS[0],
    *,
    properties: Mapping[str, str] | None = None,
    access_control: bool = False,
    secured: bool = False,
    full_compiler: bool = False,
    java_options: tuple[str, ...] = (),
) -> Iterator[Rig]:
    """A cluster of one node, which is broker and controller. `properties` are added to its own.

    - With `access_control`, principals have a listener with SASL PLAIN, and with tokens without a signature.
    - With `secured`, they have a listener with TLS and more mechanisms.
    """
    port, controller, sasl = free_port(), free_port(), free_port()
    remote = folder / "remote"
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    advertised = f"PLAINTEXT://127.0.0.1:{port}"
    if access_control:
        listeners += f",SASL_PLAINTEXT://127.0.0.1:{sasl}"
        advertised += f",SASL_PLAINTEXT://127.0.0.1:{sasl}"
    certificates = make_certificates(folder / "tls") if secured else None
    if certificates is not None:
        listeners += f",SASL_SSL://127.0.0.1:{sasl}"
        advertised += f",SASL_SSL://127.0.0.1:{sasl}"
    own = {
        **_common(folder / "data", 1),
        **_tiered(version, remote, 1),
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": listeners,
        "advertised.listeners": advertised,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
        ),
        **(_access_control() if access_control else {}),
        **({} if certificates is None else security.properties(certificates)),
        **(properties or {}),
    }
    node = Node(version, folder / "node-1", own, full_compiler=full_compiler, java_options=java_options)
    rig = Rig(version, {1: node}, {1: f"127.0.0.1:{port}"}, remote)
    if access_control or secured:
        rig.sasl_bootstrap = f"127.0.0.1:{sasl}"
    rig.certificates = certificates
    with _running(rig):
        if secured:
            security.add_users(rig.bootstrap)
        yield rig


@contextmanager
def cluster(
    folder: Path, brokers: int = 3, version: str = VERSIONS[0], *, properties: Mapping[str, str] | None = None
) -> Iterator[Rig]:
    """A controller (node 0) and `brokers` brokers (nodes 1 and up) that tier to one directory."""
    controller = free_port()
    remote = folder / "remote"
    protocols = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    quorum = {"controller.quorum.voters": f"0@127.0.0.1:{controller}", **protocols}
    ports = {number: free_port() for number in range(1, brokers + 1)}
    first = {
        **_common(folder / "data-0", brokers),
        **quorum,
        "process.roles": "controller",
        "remote.log.storage.system.enable": "true",  # else it refuses tiered topics
        "node.id": "0",
        "listeners": f"CONTROLLER://127.0.0.1:{controller}",
        **(properties or {}),
    }
    nodes = {0: Node(version, folder / "node-0", first, heap_mb=256)}
    for number, port in ports.items():
        own = {
            **_common(folder / f"data-{number}", brokers),
            **_tiered(version, remote, brokers),
            **quorum,
            "process.roles": "broker",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **(properties or {}),
        }
        nodes[number] = Node(version, folder / f"node-{number}", own)
    rig = Rig(version, nodes, {number: f"127.0.0.1:{port}" for number, port in ports.items()}, remote)
    with _running(rig):
        yield rig


@contextmanager
def _running(rig: Rig) -> Iterator[None]:
    cluster_id = new_id()
    try:
        for node in rig.nodes.values():
            node.format(cluster_id)
        rig.start()
        yield
    finally:
        rig.stop()

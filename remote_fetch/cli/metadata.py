"""`remote-fetch cat -L`: brokers, topics and partitions, in the lines and in the JSON of kcat -L.

Rules of the file: the brokers are asked for all topics, because a question about one topic may create it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from remote_fetch.cli.options import config_from, topics_from
from remote_fetch.errors import ConfigError
from remote_fetch.prepare.subscribed import described_name
from remote_fetch.session.session import Session

__all__ = ["print_metadata"]


def print_metadata(arguments: argparse.Namespace) -> int:
    """Print the metadata of the cluster, or of the topics of `-t`. Raises ConfigError, UnknownTopic, KafkaException."""
    with Session.open(config_from(arguments)) as session:
        if session.brokers is None:
            raise ConfigError("cat -L asks the brokers: set bootstrap.servers (-b)", key="bootstrap.servers")
        wanted = [described_name(session.brokers, topic) for topic in topics_from(arguments)]
        found = session.brokers.cluster.metadata()
    topics = [found.topics[name] for name in wanted or sorted(found.topics)]
    if arguments.json:
        print(json.dumps(_as_json(found, topics, wanted), separators=(",", ":")))
        return 0
    for line in _lines(found, topics, wanted):
        print(line)
    return 0


def _lines(found: Any, topics: Sequence[Any], wanted: Sequence[str]) -> Iterator[str]:
    origin = f"from broker {found.orig_broker_id}: {found.orig_broker_name}"
    yield f"Metadata for {', '.join(wanted) or 'all topics'} ({origin}):"
    yield f" {len(found.brokers)} brokers:"
    for broker in found.brokers.values():
        controller = " (controller)" if broker.id == found.controller_id else ""
        yield f"  broker {broker.id} at {broker.host}:{broker.port}{controller}"
    yield f" {len(topics)} topics:"
    for topic in topics:
        error = "" if topic.error is None else f" {topic.error.str()}"
        yield f'  topic "{topic.topic}" with {len(topic.partitions)} partitions:{error}'
        for _, part in sorted(topic.partitions.items()):
            replicas, isrs = (",".join(map(str, ids)) for ids in (part.replicas, part.isrs))
            error = "" if part.error is None else f", {part.error.str()}"
            yield f"    partition {part.id}, leader {part.leader}, replicas: {replicas}, isrs: {isrs}{error}"


def _as_json(found: Any, topics: Sequence[Any], wanted: Sequence[str]) -> dict[str, Any]:
    return {
        "originating_broker": {"id": found.orig_broker_id, "name": found.orig_broker_name},
        "query": {"topic": ",".join(wanted) or "*"},
        "controllerid": found.controller_id,
        "brokers": [{"id": each.id, "name": f"{each.host}:{each.port}"} for each in found.brokers.values()],
        "topics": [
            {
                "topic": topic.topic,
                **({} if topic.error is None else {"error": topic.error.str()}),
                "partitions": [_partition(part) for _, part in sorted(topic.partitions.items())],
            }
            for topic in topics
        ],
    }


def _partition(part: Any) -> dict[str, Any]:
    return {
        "partition": part.id,
        **({} if part.error is None else {"error": part.error.str()}),
        "leader": part.leader,
        "replicas": [{"id": broker} for broker in part.replicas],
        "isrs": [{"id": broker} for broker in part.isrs],
    }

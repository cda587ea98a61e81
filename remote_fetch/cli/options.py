"""The options that commands share, under kcat's letters, and the configuration they make.

Rules of the file:

- `-X` wins over the file of `-F`. The options of this program win over both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remote_fetch.cli.parser import whole_number
from remote_fetch.config.client import check_utf8, of_librdkafka
from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.model import TopicIdPartition, Uuid

__all__ = [
    "CHECK_THE_URL",
    "Once",
    "add_common_options",
    "add_json_option",
    "add_range_options",
    "add_topics_option",
    "check_distinct",
    "config_from",
    "pairs_from",
    "partitions_from",
    "topics_from",
]

CHECK_THE_URL = "Check remote.storage.url (--url): remote-fetch doctor finds the right one"
"""The hint if a store has nothing of what the brokers have tiered."""
_BLANKS = " \t\n\v\f\r"
"""The signs that kcat cuts off around a name and a value of a file. On the command line it keeps those at the end, as
of a password. A password may begin or end with a blank of Unicode."""


class Once(argparse.Action):
    """Takes one value and refuses a second one. argparse would silently drop the first of two topics."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Keep the value. Ends the program with a usage error if the option already has a value."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option}: given twice, {getattr(namespace, self.dest)!r} and {values!r}; give one")
        setattr(namespace, self.dest, values)


def add_json_option(group: Any, prints: str) -> None:
    """Add `-J` and `--json`. `prints` names what stands in a JSON object, such as "a segment"."""
    group.add_argument("-J", "--json", dest="json", action="store_true", help=f"print one JSON object {prints}")


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the storage and its configuration."""
    storage = parser.add_argument_group("storage")
    storage.add_argument(
        "--url", metavar="URL", help="the broker's remote storage: a directory or URL (remote.storage.url)"
    )
    storage.add_argument("--layout", help="how segments are stored there (remote.storage.layout)")
    storage.add_argument(
        "--broker-properties", metavar="FILE", help="a broker's server.properties (remote.storage.broker.properties)"
    )
    storage.add_argument("-b", dest="brokers", metavar="BROKERS", help="bootstrap.servers of the cluster")
    storage.add_argument(
        "-X", dest="properties", metavar="KEY=VALUE", action="append", default=[], help="set a configuration key"
    )
    storage.add_argument("-F", dest="file", metavar="FILE", help="read configuration from a file of KEY=VALUE lines")


def add_topics_option(group: Any, *, required: bool) -> None:
    """Add a `-t` that may be repeated, for commands that read several topics one after another."""
    group.add_argument(
        "-t", dest="topics", metavar="TOPIC", action="append", required=required,
        help="the topic; NAME:ID for one id; may be repeated",
    )  # fmt: skip


def topics_from(arguments: argparse.Namespace) -> list[str]:
    """The topics of `-t`, in the order of the command line. Raises ConfigError for a topic that is given twice."""
    topics: list[str] = arguments.topics or []
    twice = [topic for at, topic in enumerate(topics) if topic in topics[:at]]
    if twice:
        raise _given_twice(twice[0])
    return topics


def check_distinct(topics: Iterable[str], found: Iterable[Iterable[TopicIdPartition]]) -> None:
    """Raise ConfigError if two of the topics have partitions of one topic id, as NAME and NAME:ID may.

    `found` are the partitions of each topic.
    """
    seen: set[Uuid] = set()
    for topic, partitions in zip(topics, found, strict=True):
        ids = {partition.topic_id for partition in partitions}
        if not seen.isdisjoint(ids):
            raise _given_twice(topic)
        seen |= ids


def _given_twice(topic: str) -> ConfigError:
    return ConfigError(f"-t {topic}: the topic is given twice", key="-t")


def add_range_options(
    parser: argparse.ArgumentParser, *, topic_required: bool, several: bool = False, ends: str = "latest (default)"
) -> None:
    """Add the options that select records. `several`: of several topics. `ends`: the words that `--end` takes."""
    wanted = parser.add_argument_group("records")
    if several:
        add_topics_option(wanted, required=topic_required)
    else:
        topic_help = "the topic; NAME:ID for one id"
        wanted.add_argument("-t", dest="topic", metavar="TOPIC", action=Once, required=topic_required, help=topic_help)
    wanted.add_argument(
        "-p",
        dest="partitions",
        metavar="PARTITION",
        action="append",
        help="only this partition (default: all); may be repeated",
    )
    wanted.add_argument(
        "-o", dest="offsets", metavar="OFFSET", action="append", default=[],
        help="where to start: beginning (default), end, an offset, -N (N before the end), s@TIME; e@TIME is where to "
        "stop. TIME is milliseconds since 1970 or ISO 8601",
    )  # fmt: skip
    wanted.add_argument(
        "--end", metavar="BOUND", help=f"where to stop (exclusive): {ends}, an offset or an ISO 8601 time"
    )
    wanted.add_argument("--isolation", metavar="LEVEL", help="read_committed (default) or read_uncommitted")
    wanted.add_argument(
        "--log-start",
        type=int,
        metavar="OFFSET",
        help="the log start offset, where it is known: nothing before it is read",
    )


def config_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """The configuration of the common options, with one name for each key. Raises ConfigError."""
    config: dict[str, Any] = {}
    if arguments.file is not None:
        try:
            with open(arguments.file, encoding="utf-8-sig", newline="\n") as file:
                lines = (line.rstrip(_BLANKS) for line in file)
                _add_pairs(config, lines, lambda line: f"-F {arguments.file}, line {line}")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"-F {arguments.file}: {file_fault(error)}") from error
    _add_pairs(config, arguments.properties, lambda number: f"-X, number {number}")
    config = of_librdkafka(config)  # before the options, which win over any name of a key
    own = {"remote.storage.url": arguments.url, "remote.storage.layout": arguments.layout}
    own["remote.storage.broker.properties"] = arguments.broker_properties
    own["bootstrap.servers"] = arguments.brokers
    config.update({key: value for key, value in own.items() if value is not None})
    return config


def pairs_from(words: Iterable[str], option: str) -> Mapping[str, str]:
    """The KEY=VALUE pairs of an option that may be repeated. Raises ConfigError, which shows no value."""
    pairs: dict[str, str] = {}
    _add_pairs(pairs, words, lambda number: f"{option}, number {number}")
    for name, value in pairs.items():
        check_utf8(name, value)
    return pairs


def _add_pairs(pairs: dict[str, Any], lines: Iterable[str], where: Callable[[int], str]) -> None:
    for number, line in enumerate(lines, 1):
        text = line.lstrip(_BLANKS)
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip(_BLANKS):
            # The line is not shown: it may be a secret that lost its key.
            raise ConfigError(f"{where(number)}: KEY=VALUE expected")
        name = key.strip(_BLANKS)
        pairs.pop(name, None)  # a key may have two names: the one that was given last has to be the last one
        pairs[name] = value.lstrip(_BLANKS)


def partitions_from(arguments: argparse.Namespace) -> list[int] | None:
    """The partitions of `-p`, which may be repeated and may hold several with commas. Raises ConfigError."""
    if not arguments.partitions:
        return None
    try:
        return [whole_number(number) for text in arguments.partitions for number in text.split(",")]
    except ValueError:
        raise ConfigError(f"-p {','.join(arguments.partitions)}: partition numbers expected") from None

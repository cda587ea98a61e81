"""`remote-fetch cat -G GROUP`: the records of topics, read as a member of a consumer group by `RemoteConsumer`.

Rules of the file:

- The command commits only the records that it has printed. It stores an offset after it has written the record.
- librdkafka's properties decide as in kcat: auto.offset.reset, enable.auto.commit and so on, by -X or -F.
- `-o beginning` and `-o end` are auto.offset.reset. Another start belongs to a read without a group.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.cli.bounds import isolation_of
from remote_fetch.cli.options import config_from, topics_from
from remote_fetch.cli.output import print_records
from remote_fetch.cli.printer import ROW_COLUMNS, Printer
from remote_fetch.cli.typed import typed_config, typed_rows
from remote_fetch.config.client import check_utf8
from remote_fetch.consumer.consumer import RemoteConsumer
from remote_fetch.errors import ConfigError
from remote_fetch.session.messages import batch_of_messages

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["print_group"]

_AT_ONCE = 500
_POLL_S = 0.5
_STORES = "enable.auto.offset.store"
"""A user who sets it decides what is stored."""
_RESETS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


def print_group(arguments: argparse.Namespace, printer: Printer) -> int:
    """Print records until `-c` or `-e` ends it, or an interrupt. Raises ConfigError, KafkaException."""
    topics = [*topics_from(arguments), *arguments.names]
    given = config_from(arguments)  # once: a file of -F may be a pipe
    config = _group_config(arguments, given, topics)
    typed = typed_rows(typed_config(arguments, given), topics)
    consumer = RemoteConsumer(config)
    try:
        stores = _STORES not in given
        member = _Member(consumer, topics, quiet=arguments.quiet, exits=arguments.exit, stores=stores)
        if arguments.count != 0:
            for count in print_records(arguments, member.batches(arguments.count), printer, typed):
                member.printed(count)
    finally:
        consumer.close()
    return 0


def _group_config(arguments: argparse.Namespace, given: Mapping[str, Any], topics: Sequence[str]) -> dict[str, Any]:
    if not topics:
        raise ConfigError("cat -G GROUP TOPIC...: name the topics", key="-G")
    for topic in topics:
        check_utf8(topic)
    if "bootstrap.servers" not in given:
        raise ConfigError("a consumer group needs brokers: set bootstrap.servers (-b)", key="bootstrap.servers")
    refused = {"-p": arguments.partitions, "--end": arguments.end, "--log-start": arguments.log_start}
    for option, value in refused.items():
        if value is not None:
            raise ConfigError(f"{option} and -G exclude each other: the group decides what is read", key=option)
    config = {
        "auto.offset.reset": "latest",
        _STORES: "false",
        **given,
        "fetch.remote.enabled": "true",
        "group.id": arguments.group,
        "isolation.level": isolation_of(arguments, given).value,
        "enable.partition.eof": arguments.exit,
    }
    for text in arguments.offsets:
        if text not in _RESETS:
            raise ConfigError(
                f"-o {text}: a consumer group goes on at its committed offsets",
                key="-o",
                hint="-o beginning and -o end say where a group begins that has none",
            )
        config["auto.offset.reset"] = _RESETS[text]
    return config


class _Member:
    """A member of the group, which reads batches.

    - `exits`: until the ends of its partitions. A member without partitions waits for some, as that of kcat does.
    - `stores`: the offsets of printed records are stored.
    """

    def __init__(
        self, consumer: RemoteConsumer, topics: Sequence[str], *, quiet: bool, exits: bool, stores: bool
    ) -> None:
        self._consumer = consumer
        self._stores = stores
        self._given: list[Any] = []
        self._is_quiet = quiet
        self._exits = exits
        self._ended: set[tuple[str, int]] = set()
        self._assigned: set[tuple[str, int]] = set()
        consumer.subscribe(list(topics), on_assign=self._got, on_revoke=self._lost)

    def batches(self, most: int | None) -> Iterator[pa.RecordBatch]:
        """Yield what is read, at most `most` records. Raises KafkaException, after the records before the error."""
        left = sys.maxsize if most is None else most
        while left > 0 and not self._is_at_end():
            messages = self._consumer.consume(min(_AT_ONCE, left), _POLL_S)
            failed = next((at for at, message in enumerate(messages) if _has_failed(message)), len(messages))
            records = [message for message in messages[:failed] if not self._is_end(message)]
            if records:
                left -= len(records)
                self._given = records
                yield batch_of_messages(records, ROW_COLUMNS)
            if failed < len(messages):
                raise _failure(messages[failed])

    def printed(self, count: int) -> None:
        """Store the offsets of the first `count` records of the last batch."""
        if self._stores:
            last = {(message.topic(), message.partition()): message for message in self._given[:count]}
            for message in last.values():
                self._consumer.store_offsets(message)

    def _is_at_end(self) -> bool:
        return self._exits and bool(self._assigned) and self._assigned <= self._ended

    def _is_end(self, message: Any) -> bool:
        """Whether a message says that a partition ended."""
        place = message.topic(), message.partition()
        if message.error() is None:
            self._ended.discard(place)
            return False
        self._ended.add(place)
        return True

    def _got(self, _: Any, partitions: Iterable[Any]) -> None:
        places = {(partition.topic, partition.partition) for partition in partitions}
        self._assigned |= places
        self._say("assigned", places)

    def _lost(self, _: Any, partitions: Iterable[Any]) -> None:
        places = {(partition.topic, partition.partition) for partition in partitions}
        self._assigned -= places
        self._ended -= places
        self._say("revoked", places)

    def _say(self, what: str, places: Iterable[tuple[str, int]]) -> None:
        if not self._is_quiet:
            shown = ", ".join(f"{topic} [{number}]" for topic, number in sorted(places))
            print(f"% {what}: {shown or 'no partition'}", file=sys.stderr, flush=True)


def _has_failed(message: Any) -> bool:
    error = message.error()
    return error is not None and error.code() != KafkaError._PARTITION_EOF


def _failure(message: Any) -> KafkaException:
    """The error of a message. It names the topic: a group may read several."""
    error, topic = message.error(), message.topic()
    if topic is None or topic in error.str():  # of a topic that is not there, which has no partition
        return KafkaException(error)
    return KafkaException(KafkaError(error.code(), f"{topic} [{message.partition()}]: {error.str()}"))

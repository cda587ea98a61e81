"""Which records match, and in which partition a producer puts a key.

Rules of the file:

- Pure. A batch is tested by Arrow, as a whole. All conditions have to hold.
- Keys and values are bytes. A regular expression is one of RE2, and each byte is a character to it.
- The partitioners are those of Kafka's Java producer (murmur2) and of librdkafka (consistent: CRC-32).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from remote_fetch.config.client import check_utf8
from remote_fetch.errors import ConfigError
from remote_fetch.formats.metadata_partitioner import murmur2

__all__ = ["PARTITIONERS", "Conditions", "partition_of"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a search. None stands for no condition.

    - `key`: this key. `key_regex`, `value_regex`: a match somewhere in it.
    - `value`: these bytes somewhere in the value.
    - `header`: a header of this name, and if `header_value` is given, with this value.
    """

    key: bytes | None = None
    key_regex: str | None = None
    value: bytes | None = None
    value_regex: str | None = None
    header: str | None = None
    header_value: bytes | None = None

    def check(self, *, needs_one: bool = True) -> None:
        """Raise ConfigError for an expression that is none of RE2, a header's name that is not UTF-8, and no condition.

        With `needs_one` false there may be no condition.
        """
        check_utf8("--header", self.header)
        for name, regex in (("--key-regex", self.key_regex), ("--value-regex", self.value_regex)):
            if regex is not None:
                try:
                    _matches(pa.array([b""], pa.binary()), regex)
                except pa.ArrowInvalid as error:
                    raise ConfigError(f"{name}: {error}", key=name) from None
        conditions = (self.key, self.key_regex, self.value, self.value_regex, self.header)
        if needs_one and all(condition is None for condition in conditions):
            raise ConfigError("grep needs a condition, such as -k KEY or --value TEXT", key="-k")

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch with key, value and headers that match."""
        batch = self._kept(batch, self.key, lambda wanted: _equal(batch.column("key"), wanted))
        batch = self._kept(batch, self.key_regex, lambda regex: _matches(batch.column("key"), regex))
        batch = self._kept(batch, self.value, lambda wanted: pc.match_substring(batch.column("value"), wanted))
        batch = self._kept(batch, self.value_regex, lambda regex: _matches(batch.column("value"), regex))
        return self._kept(
            batch, self.header, lambda name: _with_header(batch.column("headers"), name, self.header_value)
        )

    @staticmethod
    def _kept(batch: pa.RecordBatch, condition: Any, mask: Callable[[Any], Any]) -> pa.RecordBatch:
        if condition is None or not batch.num_rows:
            return batch
        return batch.filter(pc.fill_null(mask(condition), False))


def _equal(column: Any, wanted: bytes | str) -> Any:
    scalar: Any = pa.scalar(wanted)
    return pc.equal(column, scalar)


def _matches(column: Any, regex: str) -> Any:
    pattern: Any = regex.encode("utf-8", "surrogateescape")  # the bytes of a command line
    return pc.match_substring_regex(column, pattern)


def _with_header(headers: Any, name: str, value: bytes | None) -> Any:
    """For each row, whether it has the header."""
    flat = headers.flatten()
    is_wanted = _equal(flat.field("key"), name)
    if value is not None:
        is_wanted = pc.and_(is_wanted, pc.fill_null(_equal(flat.field("value"), value), False))
    rows = pc.list_parent_indices(headers).filter(pc.fill_null(is_wanted, False))
    numbers: Any = pa.array(range(len(headers)), pa.int64())
    return pc.is_in(numbers, value_set=rows.cast(pa.int64()))


def partition_of(key: bytes, partitions: int, partitioner: str) -> int | None:
    """The partition to which a producer with this partitioner sends a key. `partitioner` is a name in PARTITIONERS.

    None: any of them. librdkafka's `consistent_random` takes an empty key for none, while its `consistent` does not.
    """
    if not key and partitioner == "consistent":
        return None
    return PARTITIONERS[partitioner](key) % partitions


PARTITIONERS: Final[Mapping[str, Callable[[bytes], int]]] = MappingProxyType(
    {"murmur2": murmur2, "consistent": zlib.crc32}
)
"""The hash of a key, by librdkafka's name of the partitioner. The partition is its remainder by their number."""

"""Compares the records of a reader with those of the broker, and knows one mistake of old brokers.

Rules of the file:

- A difference is a failure, unless it is exactly that mistake. Then the test is an expected failure that names it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.rig.rig import Rig
from tests.rig.topics import OracleRecord, broker_records

__all__ = ["assert_is_the_brokers"]

_MENDED = (3, 9, 1)
_MISTAKE = (
    "KAFKA-17801: brokers from 3.6 to 3.9.0 leave aborted transactions out of what they tell of a range in the tier, "
    "and a consumer under read_committed is given their records; which they are depends on where its fetches begin"
)


def assert_is_the_brokers(
    rig: Rig, topic: str, isolation: str, found: Sequence[OracleRecord], expected: Sequence[OracleRecord]
) -> None:
    """Check that `found` equals `expected`, a consumer's records of partition 0.

    An old broker may give aborted records too (see above): then the test is an expected failure.
    """
    if found == expected:
        return
    if isolation == "read_committed" and not rig.is_at_least(*_MENDED):
        everything = broker_records(rig, topic, 0, "read_uncommitted", start=min(expected[0].offset, found[0].offset))
        if _is_a_part(found, everything) and _is_a_part(expected, everything):
            pytest.xfail(_MISTAKE)
    assert found == expected


def _is_a_part(some: Sequence[OracleRecord], everything: Sequence[OracleRecord]) -> bool:
    """Whether `some` is `everything` without some of its records."""
    rest = iter(everything)
    return all(record in rest for record in some)

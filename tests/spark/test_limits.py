"""Which limits a batch takes, in the words of Spark's Kafka source."""

from __future__ import annotations

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.prepare.bounds import Edge
from remote_fetch.spark.limits import check_batch
from remote_fetch.spark.options import parse_options
from tests.cases import each_of

BASE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def test_limits_that_are_not_given() -> None:
    assert check_batch(parse_options(BASE)) == (Edge.EARLIEST, Edge.LATEST)


@each_of(
    ("options", "message"),
    [
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "start timestamp 9 is greater than end timestamp 8"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
            "Mismatched topic partitions between start offset and end offset: only one of them has t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
            "Failed to resolve the range of t-0: start offset 5 is greater than end offset 4",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
            "Failed to resolve the range of t-0: start timestamp 5 is greater than end timestamp 4",
        ),
    ],
)
def test_limits_that_a_batch_refuses(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_batch(parse_options({**BASE, **options}))
    assert str(caught.value).startswith(message)

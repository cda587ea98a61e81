"""Code that is typed for the parent type-checks with RemoteConsumer: mypy checks this file, and the tests run it."""

from __future__ import annotations

from typing import assert_type

import pytest
from confluent_kafka import KafkaException, TopicPartition

from remote_fetch import RemoteConsumer


def test_methods_have_the_types_of_the_parent() -> None:
    partition = TopicPartition("orders", 0)
    with RemoteConsumer({"group.id": "g"}) as consumer:
        low, high = assert_type(consumer.get_watermark_offsets(partition, cached=True), tuple[int, int])
        assert low == high
        with pytest.raises(KafkaException):  # there is nothing to commit
            assert_type(consumer.commit(asynchronous=False), list[TopicPartition])

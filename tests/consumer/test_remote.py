"""What the remote half does as partitions are assigned."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from remote_fetch.consumer.remote import Remote
from tests.consumer.fakes import FakeInner


@pytest.mark.parametrize("is_incremental", [False, True])
def test_an_assignment_that_comes_while_closing_asks_nobody(is_incremental: bool) -> None:
    remote, inner = Remote.__new__(Remote), FakeInner()
    remote._inner, remote.is_closing = inner, True
    remote.assign([TopicPartition("t", 0), TopicPartition("t", 1, 7)], is_incremental=is_incremental)
    how = "incremental_assign" if is_incremental else "assign"
    assert inner.taken() == [(how, [(0, -1001), (1, 7)])]

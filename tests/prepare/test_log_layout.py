"""The numbers that follow from the bounds of a partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.prepare.log_layout import LogLayout

PARTITION = TopicIdPartition(Uuid(bytes(16)), "t", 0)
LAYOUT = LogLayout(PARTITION, 0, 0, 90, 90, 80, 100, 95, 3, 10, None, 20)


@pytest.mark.parametrize(
    ("log_start", "tier_end", "high_watermark", "lag"),
    [
        (0, 90, 100, 10),
        (0, 100, 100, 0),
        (0, None, 100, 100),  # nothing tiered
        (95, 90, 100, 5),  # deleted records are not to be copied
        (0, 101, 100, 0),  # the tier was asked after the broker
        (None, 90, None, None),
    ],
)
def test_the_lag_of_the_copy(
    log_start: int | None, tier_end: int | None, high_watermark: int | None, lag: int | None
) -> None:
    layout = replace(LAYOUT, log_start=log_start, tier_end=tier_end, high_watermark=high_watermark)
    assert layout.copy_lag == lag

"""The progress of one range that a broker gives, and the errors since the last record.

Rules of the file:

- Only a new offset is progress. A pause of the reader's own is no stall.
- Nothing here waits, and nothing asks a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from remote_fetch.failures.broker_errors import BrokerStalled, is_refused_offset
from remote_fetch.model import IsolationLevel, LogBounds
from remote_fetch.plan.ranges import BrokerRange

__all__ = ["Pace"]


@dataclass(slots=True)
class Pace:
    """The progress of the range `step` under an isolation level.

    - `offset` is the next offset to read, and `moved_at` the time when it last changed. A pause does not count.
    - `checked_at` is the time of the last check of a stall.
    - `is_reported`: a notice has reported this stall.
    - `cause` is the last error of librdkafka during it, as the end of a sentence. `is_refused`: the error is about an
      offset outside of the log.
    - `haste`: how often the longest wait is halved, until the broker gives something.
    """

    step: BrokerRange
    isolation: IsolationLevel
    clock: Callable[[], float]
    haste: int
    offset: int = field(init=False)
    moved_at: float = field(init=False)
    checked_at: float = 0.0
    is_reported: bool = False
    cause: str = ""
    is_refused: bool = False

    def __post_init__(self) -> None:
        self.offset, self.moved_at = self.step.first_offset, self.clock()

    def heard(self, cause: KafkaError | None) -> None:
        """Note the last error that librdkafka handles, if there is one. It may try again without end."""
        if cause is not None:
            self.cause, self.is_refused = f" ({cause.str()})", is_refused_offset(cause)

    def reached(self, offset: int) -> None:
        """Note the consumer's position. A position that is unknown (negative) or not past `offset` changes nothing."""
        if offset > self.offset:
            self.offset, self.moved_at, self.is_reported = offset, self.clock(), False
            self.cause, self.is_refused, self.haste = "", False, 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While the guard asks. It waits for a broker that is away: that is no stall, and has a limit of its own."""
        began = self.clock()
        yield
        self.moved_at += self.clock() - began

    def check_refusal(self, bounds: LogBounds) -> None:
        """Raise BrokerStalled if the broker refuses the offset, although it lies in the log by its own bounds."""
        start, end = bounds.log_start_offset or 0, bounds.end_offset or 0
        if self.is_refused and start <= self.offset < end:
            text = (
                f"{self.step.partition.topic_partition}: the broker refuses offset {self.offset}{self.cause}, though "
                f"its log goes from {start} to {end}"
            )
            raise BrokerStalled(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE, text))

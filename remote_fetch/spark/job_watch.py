"""Lines in the driver's log about how far a backfill is: once a minute, from the records of its tasks.

Rules of the file:

- Spark tells a driver nothing of single tasks that works over Spark Connect too. So the watch lists the records of
  finished tasks in the job's staging place.
- A listing that fails leaves out a line. It never ends the job.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from remote_fetch.progress import LINE_EVERY_S, Meter, Position

__all__ = ["watched"]

_JOIN_S = 5.0


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a driver's stderr is its log


@contextmanager
def watched(
    finished: Callable[[], Collection[int]],
    sizes_bytes: Sequence[int],
    *,
    every_s: float = LINE_EVERY_S,
    say: Callable[[str], None] = _print,
) -> Iterator[None]:
    """Say every `every_s` seconds how many tasks are done. `sizes_bytes` has the size of each, by its number.

    `finished` gives the numbers of the tasks that are done. A thread calls it, and ends with the context.
    """
    ended = threading.Event()

    def watch() -> None:
        meter = Meter(every_s, time.monotonic())
        _look(finished, sizes_bytes, lambda position: meter.take(position, time.monotonic()))
        while not ended.wait(every_s):
            _look(finished, sizes_bytes, lambda position: say(f"% {meter.line(position, time.monotonic())}"))

    thread = threading.Thread(target=watch, name="remote-fetch-backfill", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_S)  # a store that hangs may not hold the job


def _look(
    finished: Callable[[], Collection[int]], sizes_bytes: Sequence[int], take: Callable[[Position], None]
) -> None:
    try:
        done = [number for number in finished() if number < len(sizes_bytes)]
    except Exception:  # any error of the target's filesystem; the next look is in a minute
        return
    read_bytes = sum(sizes_bytes[number] for number in done)
    take(Position("backfill, tasks done", len(done), len(sizes_bytes), size_bytes=read_bytes))

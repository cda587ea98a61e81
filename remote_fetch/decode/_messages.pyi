"""What `messages.py` sees of the inner loop; the annotations of its source are for Cython and mean nothing to mypy."""

from collections.abc import Callable
from typing import Any

COMPILED: bool

class Cells:
    def __init__(
        self, ends: memoryview, data: memoryview, validity: memoryview | None = None, first_bit: int = 0
    ) -> None: ...

class Rows:
    def __init__(
        self,
        make: Callable[..., Any],
        topic: str,
        partition: int,
        *,
        key: Cells,
        value: Cells,
        offset: memoryview,
        timestamp: memoryview,
        timestamp_type: memoryview,
        leader_epoch: memoryview,
        header_ends: memoryview,
        header_key: Cells,
        header_value: Cells,
    ) -> None: ...
    def messages(self, start: int, stop: int) -> list[Any]: ...

"""What others see of the walk over headers."""

from array import array
from collections.abc import Callable

COMPILED: bool

class Scanner:
    def __init__(
        self,
        checksum: Callable[[memoryview], int],
        max_batch_bytes: int,
        segment_offsets: tuple[int, int],
        stop_offset: int,
        entries: tuple[int, int],
        hidden: tuple[array[int], array[int], array[int]] | None,
    ) -> None: ...
    @property
    def taken(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    def scan(
        self,
        data: memoryview,
        at: int,
        step_bytes: int,
        offsets: tuple[int, int],
        epochs: tuple[int, int],
        table: memoryview[int],
    ) -> int: ...

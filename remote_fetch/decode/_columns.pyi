"""What `columns.py` sees of the inner loop; the annotations of its source are for Cython and mean nothing to mypy."""

from array import array
from collections.abc import Mapping

COMPILED: bool

class ByteColumn:
    def __init__(self, offsets: memoryview, validity: memoryview, data: memoryview) -> None: ...
    def used_bytes(self, items: int) -> int: ...

class Columns:
    def __init__(
        self, row_capacity: int, header_capacity: int, views: Mapping[str, memoryview | ByteColumn]
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def header_count(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def failed_record(self) -> int: ...
    @property
    def failed_offset(self) -> int: ...
    def decode(
        self,
        area: memoryview,
        batches: memoryview[int] | array[int],
        first: int,
        stop: int,
        start_offset: int,
        stop_offset: int,
    ) -> int: ...

"""What `columns.py` sees of the inner loop; the annotations of its source are for Cython and mean nothing to mypy."""

from remote_fetch.formats.batches import BatchHeader

NEED_ROOM: int
COMPILED: bool
FAULTS: dict[int, str]

class ByteColumn:
    def __init__(self, offsets: memoryview, validity: memoryview, data: memoryview) -> None: ...
    @property
    def used_bytes(self) -> int: ...

class Columns:
    def __init__(
        self,
        row_capacity: int,
        header_capacity: int,
        *,
        key: ByteColumn | None = None,
        value: ByteColumn | None = None,
        header_ends: memoryview | None = None,
        header_key: ByteColumn | None = None,
        header_value: ByteColumn | None = None,
        offset: memoryview | None = None,
        timestamp: memoryview | None = None,
        timestamp_type: memoryview | None = None,
        leader_epoch: memoryview | None = None,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def header_count(self) -> int: ...
    @property
    def failed_record(self) -> int: ...
    @property
    def failed_offset(self) -> int: ...
    def decode(
        self, area: memoryview, header: BatchHeader, timestamp_type: int, start_offset: int, stop_offset: int
    ) -> int: ...

from collections.abc import Callable, Sequence
from typing import Any

def joined(runs: Sequence[Run]) -> Run: ...
def multiples(step: int, count: int) -> bytes: ...

class ColumnMemory:
    def __init__(self, max_bytes: int) -> None: ...
    def close(self) -> None: ...

class DecodeThreads:
    def __init__(self, most: int) -> None: ...
    @property
    def count(self) -> int: ...
    def close(self, timeout_ms: int) -> int: ...

class Ahead:
    def wait(self, timeout_ms: int) -> list[Run] | None: ...

class Run:
    @property
    def position(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def saturated(self) -> int: ...
    @property
    def shown(self) -> dict[int, int]: ...
    @property
    def ended_producers(self) -> set[int]: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]: ...
    def messages(self, make: Callable[..., Any], topic: str, partition: int) -> Rows: ...

class RunDecoder:
    def __init__(
        self,
        columns: Sequence[str],
        *,
        segment_offsets: tuple[int, int],
        stop_offset: int,
        entries: tuple[int, int],
        aborted: Sequence[tuple[int, int, int]] | None,
        max_batch_bytes: int,
        max_decompressed_bytes: int,
        target_bytes: int,
        max_rows: int,
        memory: ColumnMemory | None = None,
    ) -> None: ...
    def cut(
        self, data: memoryview, at: int, size_bytes: int, *, last_offset: int, epoch: int, epoch_stop: int
    ) -> tuple[int, int, int, bool]: ...
    def decode(
        self,
        data: memoryview,
        at: int,
        *,
        last_offset: int,
        first_offset: int,
        epoch: int,
        epoch_stop: int,
        stop: int | None = None,
    ) -> Run: ...
    def decode_ahead(
        self,
        data: memoryview,
        at: int,
        *,
        last_offset: int,
        first_offset: int,
        epoch: int,
        epoch_stop: int,
        stop: int,
        threads: DecodeThreads,
        most_bytes: int,
    ) -> Ahead: ...

class BatchDecoder:
    def __init__(self, columns: Sequence[str]) -> None: ...
    def append(
        self,
        records: memoryview,
        *,
        offsets: tuple[int, int],
        window: tuple[int, int],
        record_count: int,
        base_ms: int,
        timestamp_type: int,
        leader_epoch: int,
    ) -> tuple[int, int, int]: ...
    def take(self) -> Run: ...

class Rows:
    def messages(self, start: int, stop: int) -> list[Any]: ...
    def offset(self, row: int) -> int: ...

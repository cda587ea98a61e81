from collections.abc import Sequence
from typing import Any

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
    def shown(self) -> dict[int, int]: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]: ...

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

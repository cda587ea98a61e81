"""The package `lz4` beside `remote_fetch.formats.lz4_frame`: the evidence of `docs/design/0002-dependencies.md`.

`python -m tests.benchmarks.lz4_probe` prints the findings.

Rules of the file:

- It is no test and no part of the product. It needs `pip install lz4==4.4.5`, which no extra brings.
- All ways put the content of a frame into the same room, as `Codecs` does.
- The least thread CPU time of several rounds counts.
"""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Callable
from typing import Any

from remote_fetch.formats import lz4_frame
from remote_fetch.formats.codecs import Codecs

lz4_block: Any = importlib.import_module("lz4.block")
lz4: Any = importlib.import_module("lz4.frame")

SIZES = (16 << 10, 1 << 20)
LZ4 = 3
_ROUNDS = 15
_BYTES_A_ROUND = 4 << 20


def content(size_bytes: int) -> bytes:
    """Records that inflate to about twice their stored size."""
    dice, data = random.Random(1), bytearray()
    words = [dice.randbytes(dice.randint(3, 12)) for _ in range(400)]
    while len(data) < size_bytes:
        data += dice.choice(words) + b'{"k":%d}' % dice.randint(0, 9999)
    return bytes(data[:size_bytes])


def by_blocks(data: memoryview, room: memoryview) -> int:
    """Each block by `lz4.block`, with its own parameter for the history."""
    frame, at = lz4_frame.frame_of(data, False), 0
    for stored, block in lz4_frame.blocks(data, frame):
        history = bytes(room[max(at - lz4_frame.HISTORY_BYTES, 0) : at]) if frame.linked else b""
        got = block if stored else lz4_block.decompress(block, uncompressed_size=frame.max_block_bytes, dict=history)
        room[at : at + len(got)] = got
        at += len(got)
    return at


def by_frame(data: memoryview, room: memoryview) -> int:
    """The whole frame by `lz4.frame`, which takes no room to write to."""
    got = lz4.LZ4FrameDecompressor().decompress(data, max_length=len(room))
    room[: len(got)] = got
    return len(got)


def seconds(call: Callable[[], object], times: int) -> float:
    """The least thread CPU time of a call."""
    found = []
    for _ in range(_ROUNDS):
        began = time.thread_time()
        for _ in range(times):
            call()
        found.append((time.thread_time() - began) / times)
    return min(found)


def speed() -> None:
    """Print the speed of each way, as a ratio to ours."""
    room, codecs = memoryview(bytearray(max(SIZES))), Codecs(max_bytes=max(SIZES))
    for size_bytes in SIZES:
        plain = content(size_bytes)
        for is_linked in (False, True):
            options = {"block_size": lz4.BLOCKSIZE_MAX64KB, "block_linked": is_linked, "store_size": False}
            data = memoryview(lz4.compress(plain, **options))
            assert bytes(codecs.decompress(LZ4, data)) == plain
            assert by_blocks(data, room) == by_frame(data, room) == size_bytes
            times = max(1, _BYTES_A_ROUND // size_bytes)
            ours = seconds(lambda data=data: codecs.decompress(LZ4, data), times)  # type: ignore[misc]
            block = seconds(lambda data=data: by_blocks(data, room), times)  # type: ignore[misc]
            frame = seconds(lambda data=data: by_frame(data, room), times)  # type: ignore[misc]
            form = "linked" if is_linked else "independent"
            print(f"{size_bytes >> 10} KiB, {form} blocks: lz4.block {ours / block:.2f}, lz4.frame {ours / frame:.2f}")


def refusals() -> None:
    """Print what `lz4.frame` says of frames that Kafka's reader takes."""
    plain = content(1000)
    header, checksum = bytearray(lz4.compress(plain)), bytearray(lz4.compress(plain, content_checksum=True))
    header[6] ^= 1
    checksum[-1] ^= 1
    for name, data in (("a wrong header checksum", header), ("a wrong content checksum", checksum)):
        try:
            lz4.decompress(bytes(data))
            print(f"{name}: taken")
        except RuntimeError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    speed()
    refusals()

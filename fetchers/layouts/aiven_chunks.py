"""The bytes of a segment out of the chunks in which Aiven's plug-in stored them, encrypted and compressed or not.

Rules of the file:

- Pure.
- A chunk that does not have the size that the manifest gives it is refused.
"""

from __future__ import annotations

import zstandard

from fetchers.layouts.aiven_keys import Cipher
from fetchers.layouts.aiven_manifest import ByteRange, Manifest
from remote_fetch.errors import CorruptSegment
from remote_fetch.model import Buffer

__all__ = ["bytes_of_chunks"]


def bytes_of_chunks(
    stored: memoryview, manifest: Manifest, cipher: Cipher | None, numbers: range, wanted: ByteRange
) -> memoryview:
    """The bytes `wanted` of a segment. `stored` is the chunks of these numbers, one behind the other.

    Raises CorruptSegment for a chunk that cannot be opened, and for one of another size.
    """
    chunks = manifest.chunks
    inflate = zstandard.ZstdDecompressor() if manifest.is_compressed else None
    found = memoryview(bytearray(wanted.end - wanted.start))
    filled, begin = 0, chunks.stored_range(numbers[0]).start
    for chunk in numbers:
        at = chunks.stored_range(chunk)
        piece: Buffer = stored[at.start - begin : at.end - begin]
        original_bytes = chunks.original_bytes(chunk)
        if cipher is not None:
            piece = cipher.decrypt(memoryview(piece))
        if inflate is not None:
            piece = _inflated(inflate, piece, original_bytes)
        origin = chunk * chunks.chunk_bytes
        part = memoryview(piece)[max(wanted.start - origin, 0) : min(wanted.end - origin, original_bytes)]
        found[filled : filled + len(part)] = part
        filled += len(part)
    return found.toreadonly()


def _inflated(inflate: zstandard.ZstdDecompressor, data: Buffer, original_bytes: int) -> bytes:
    """One chunk out of its zstd frame, which says its size. Raises CorruptSegment."""
    try:
        size_bytes = zstandard.get_frame_parameters(data).content_size
        if size_bytes != original_bytes:
            raise CorruptSegment(f"a chunk of {original_bytes} bytes is stored as a frame of {size_bytes}")
        return inflate.decompress(data)  # refuses a frame that does not have the size that it says
    except zstandard.ZstdError:
        raise CorruptSegment("a chunk cannot be decompressed") from None

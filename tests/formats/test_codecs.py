"""Codecs: what any writer packed comes out again, within its bound, and nothing else does."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import pack

import cramjam
import pyarrow as pa
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, DecompressionLimit, FallsBackError, UnsupportedFormat
from remote_fetch.formats.batches import HEADER_BYTES, BatchFramer
from remote_fetch.formats.codecs import CODEC_NAMES, Codecs
from tests.cases import each_of
from tests.searches import examples

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
KIB, MIB = 1 << 10, 1 << 20

XERIAL_HEADER = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)
LZ4_HEADER = bytes.fromhex("04224d18604082")
ZSTD_MAGIC = bytes.fromhex("28b52ffd")
RAW, RLE, COMPRESSED, RESERVED = range(4)


def xerial(data: bytes, block_bytes: int = 32 * KIB) -> bytes:
    blocks = [snappy_raw(data[at : at + block_bytes]) for at in range(0, len(data), block_bytes)]
    return XERIAL_HEADER + b"".join(pack(">i", len(block)) + block for block in blocks)


def snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_block(data: bytes) -> bytes:
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    return pack("<I", len(block)) + block


def lz4_kafka(data: bytes) -> bytes:
    """As Kafka's own writer: independent blocks of at most 64 KiB, no sizes, no checksums, some blocks stored."""
    frame = LZ4_HEADER
    for at in range(0, len(data), 64 * KIB):
        part = data[at : at + 64 * KIB]
        packed = lz4_block(part)
        frame += packed if len(packed) < len(part) + 4 else pack("<I", len(part) | 1 << 31) + part
    return frame + bytes(4)


def lz4_linked(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(block_linked=True, content_checksum=True)
    compressor.compress(data)
    return bytes(compressor.finish())


def zstd_streamed(data: bytes) -> bytes:
    """As Java and librdkafka do: written bit by bit, so the frame declares no content size."""
    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join([compressor.compress(data[at : at + 16_000]) for at in range(0, len(data), 16_000)]) + (
        compressor.flush()
    )


def zstd_written(data: bytes) -> bytes:
    """With the streaming writer, flushed in the middle, and with a checksum."""
    target = io.BytesIO()
    with zstandard.ZstdCompressor(level=1, write_checksum=True).stream_writer(target, closefd=False) as writer:
        writer.write(data[: len(data) // 2])
        writer.flush()
        writer.write(data[len(data) // 2 :])
    return target.getvalue()


def zstd_frame(*blocks: tuple[int, bytes, int], window: int = 0x58, flags: int = 0, tail: bytes = b"") -> bytes:
    """A frame of blocks given as type, bytes and size field; the last is marked so."""
    frame = ZSTD_MAGIC + bytes([flags, window])
    for number, (kind, data, size) in enumerate(blocks, 1):
        frame += ((number == len(blocks)) | kind << 1 | size << 3).to_bytes(3, "little") + data
    return frame + tail


WRITERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip.compress),
    "gzip, aiokafka": (GZIP, lambda data: bytes(aiokafka_codec.gzip_encode(data))),
    "gzip, two members": (GZIP, lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
    "snappy raw": (SNAPPY, snappy_raw),
    "snappy xerial": (SNAPPY, xerial),
    "snappy xerial, aiokafka": (SNAPPY, lambda data: bytes(aiokafka_codec.snappy_encode(data))),
    "lz4 as Kafka": (LZ4, lz4_kafka),
    "lz4 block checksums, aiokafka": (LZ4, lambda data: bytes(aiokafka_codec.lz4_encode(data))),
    "lz4, Arrow": (LZ4, lambda data: pa.compress(data, codec="lz4", asbytes=True)),
    "lz4 linked": (LZ4, lz4_linked),
    "zstd streamed": (ZSTD, zstd_streamed),
    "zstd written": (ZSTD, zstd_written),
    "zstd declared": (ZSTD, lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)),
    "zstd two frames": (ZSTD, lambda data: zstd_streamed(data[:100]) + zstandard.compress(data[100:])),
}
writers = pytest.mark.parametrize("writer", WRITERS)


def words(size_bytes: int, seed: int = 1) -> bytes:
    """Text that compresses about as records do."""
    choice = random.Random(seed)
    vocabulary = [choice.randbytes(choice.randint(2, 9)) for _ in range(500)]
    data = bytearray()
    while len(data) < size_bytes:
        data += choice.choice(vocabulary)
    return bytes(data[:size_bytes])


def unpack(codec: int, data: bytes, *, max_bytes: int = 64 * MIB, lz4_v0: bool = False) -> bytes:
    output = Codecs(max_bytes=max_bytes).decompress(codec, memoryview(data), lz4_v0=lz4_v0)
    assert output.readonly
    assert output.format == "B"
    assert output.contiguous
    return bytes(output)


# What goes in comes out


def test_the_names() -> None:
    assert dict(CODEC_NAMES) == {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def test_no_codec_gives_the_data_itself() -> None:
    data = memoryview(b"abc")
    assert Codecs(max_bytes=1).decompress(0, data) is data


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec: int) -> None:
    with pytest.raises(UnsupportedFormat, match=f"codec {codec}"):
        unpack(codec, b"abc")


@each_of("writer", WRITERS)
@each_of("size_bytes", [0, 1, 13, 5_000, 64 * KIB, 64 * KIB + 1, 300_000])
def test_every_writer_is_read(writer: str, size_bytes: int) -> None:
    codec, compress = WRITERS[writer]
    data = words(size_bytes)
    assert unpack(codec, compress(data)) == data


@writers
def test_incompressible_data(writer: str) -> None:
    codec, compress = WRITERS[writer]
    data = random.Random(2).randbytes(150_000)
    assert unpack(codec, compress(data)) == data


@writers
@given(data=st.binary(max_size=600) | st.text("ab", max_size=2_000).map(str.encode))
@examples(25)
def test_any_data_comes_out_again(writer: str, data: bytes) -> None:
    codec, compress = WRITERS[writer]
    assert unpack(codec, compress(data)) == data


def test_one_object_serves_all_in_any_order() -> None:
    """Also after one that was damaged, and whatever the sizes: each is written over the one before it."""
    codecs, other, choice = Codecs(), Codecs(), random.Random(1)
    for seed in range(60):
        codec, compress = WRITERS[choice.choice(list(WRITERS))]
        data = words(choice.choice([0, 20, 50_000, 70_000, 300_000]), seed)
        output = codecs.decompress(codec, memoryview(compress(data)))
        other.decompress(LZ4, memoryview(lz4_kafka(words(100_000))))  # another thread's
        assert output == data
        with suppress(FallsBackError):
            codecs.decompress(codec, memoryview(compress(data)[:-9]))


def test_an_lz4_block_is_no_larger_than_its_frame_says_whatever_was_decompressed_before() -> None:
    block = bytes(cramjam.lz4.compress_block(bytes(64 * KIB + 1), store_size=False))
    lie = lz4_kafka(b"")[:-4] + pack("<I", len(block)) + block + bytes(4)
    codecs = Codecs()
    for before in (b"", words(300_000)):
        assert codecs.decompress(LZ4, memoryview(lz4_kafka(before))) == before
        with pytest.raises(CorruptSegment):
            codecs.decompress(LZ4, memoryview(lie))


@writers
def test_the_memory_of_a_large_output_is_not_kept(writer: str) -> None:
    codec, compress = WRITERS[writer]
    codecs, large = Codecs(), memoryview(compress(words(300_000) * 20))
    tracemalloc.start()
    try:
        codecs.decompress(codec, large)
        assert tracemalloc.get_traced_memory()[0] < 5 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "writer", ["gzip", "snappy raw", "snappy xerial", "lz4 as Kafka", "zstd streamed", "zstd written", "zstd declared"]
)
def test_memory_is_used_again(writer: str) -> None:
    codec, compress = WRITERS[writer]
    codecs, packed = Codecs(), memoryview(compress(words(300_000)))
    codecs.decompress(codec, packed)
    tracemalloc.start()
    try:
        codecs.decompress(codec, packed)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size_bytes", [0, 20_000, 300_000])
def test_the_checksum_of_a_zstd_frame_counts(size_bytes: int) -> None:
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(words(size_bytes)))
    assert unpack(ZSTD, bytes(packed)) == words(size_bytes)
    packed[-1] ^= 1
    with pytest.raises(CorruptSegment, match="cannot be decompressed"):
        unpack(ZSTD, bytes(packed))


def test_the_input_may_lie_anywhere_in_a_larger_buffer() -> None:
    codecs = Codecs()
    for codec, compress in WRITERS.values():
        buffer = b"before" + compress(words(2_000)) + b"after"
        assert codecs.decompress(codec, memoryview(buffer)[6:-5]) == words(2_000)
        assert codecs.decompress(codec, memoryview(bytearray(buffer))[6:-5]) == words(2_000)


def test_golden_batches_of_all_codecs() -> None:
    """Batches of Java and librdkafka decompress to records that fill the output, each with its length in front."""
    codecs = Codecs()
    seen = dict.fromkeys(CODEC_NAMES, 0)
    for log in GOLDEN.glob("*/remote/**/codecs-*/*.log"):
        framer = BatchFramer(0)
        framer.feed(memoryview(log.read_bytes()))
        while batch := framer.next_batch():
            records = codecs.decompress(batch.header.codec, batch.data[HEADER_BYTES:])
            at = count = 0
            while at < len(records):
                value = shift = 0
                while True:
                    byte = records[at]
                    at += 1
                    value |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
                        break
                at += value >> 1
                count += 1
            assert (at, count) == (len(records), batch.header.record_count)
            seen[batch.header.codec] += 1
    assert all(seen.values())


# The bound


@writers
def test_the_bound_is_exact(writer: str) -> None:
    codec, compress = WRITERS[writer]
    packed = compress(words(200_000))
    assert len(unpack(codec, packed, max_bytes=200_000)) == 200_000
    for max_bytes in (199_999, 1, 0):
        with pytest.raises(DecompressionLimit) as raised:
            unpack(codec, packed, max_bytes=max_bytes)
        assert str(max_bytes) in raised.value.message
        assert raised.value.hint is not None
        assert "fetch.remote.max.decompressed.bytes" in raised.value.hint


def zeros(codec: int, size_bytes: int) -> bytes:
    """The densest that a codec's format allows."""
    if codec == ZSTD:
        return zstd_frame(*[(RLE, b"\0", 128 * KIB)] * (size_bytes // (128 * KIB)))
    return {GZIP: gzip.compress, SNAPPY: snappy_raw, LZ4: lz4_kafka}[codec](bytes(size_bytes))


def peak_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(FallsBackError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_takes_no_memory(codec: int) -> None:
    bomb = memoryview(zeros(codec, 48 * MIB))
    codecs = Codecs(max_bytes=2 * MIB)
    assert peak_bytes(lambda: codecs.decompress(codec, bomb)) < 8 * MIB


@pytest.mark.parametrize(
    ("codec", "lie"),
    [
        (GZIP, gzip.compress(b"abc", mtime=0)[:-4] + pack("<I", 200 * MIB)),
        (SNAPPY, b"\x80\x80\x80\x64" + snappy_raw(b"abc")[1:]),
        (SNAPPY, XERIAL_HEADER + pack(">i", 9) + b"\x80\x80\x80\x64" + b"\x10abcd"),
        (ZSTD, ZSTD_MAGIC + b"\xa0" + pack("<I", 200 * MIB) + b"\x01\0\0"),
        (ZSTD, ZSTD_MAGIC + b"\xe0" + pack("<Q", 2**62) + b"\x01\0\0"),
    ],
)
def test_a_declared_size_is_not_believed(codec: int, lie: bytes) -> None:
    codecs = Codecs()
    assert peak_bytes(lambda: codecs.decompress(codec, memoryview(lie))) < MIB


def test_zstd_frames_that_only_look_large() -> None:
    """Each compressed block may hold 128 KiB as far as its header tells."""
    compressor = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(
        compressor.compress(b"abcabcabcabc" * 5) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for _ in range(500)
    )
    packed += compressor.flush()
    assert unpack(ZSTD, packed, max_bytes=30_000) == b"abcabcabcabc" * 2_500
    with pytest.raises(DecompressionLimit):
        unpack(ZSTD, packed, max_bytes=29_999)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("size_bytes", [0, 1, 255, 256, 257, 65_791, 65_792, 131_072, 131_073])
def test_zstd_frames_that_declare_their_size(size_bytes: int, checksum: bool) -> None:
    """In one byte, two, four, or not behind a window but in a single segment: as clients in Go and Rust write them."""
    data = words(size_bytes)
    plain = zstandard.ZstdCompressor(write_checksum=checksum)
    with_window = plain.compressobj(size=size_bytes)
    for packed in (plain.compress(data), with_window.compress(data) + with_window.flush()):
        assert unpack(ZSTD, packed) == data


@given(
    size_bytes=st.sampled_from([3, 300, 3_000, 70_000]),
    form=st.sampled_from(["single segment", "no size", "window and size"]),
    at=st.integers(4, 16),
    value=st.integers(0, 255),
    cut=st.integers(0, 3),
)
@examples(300)
def test_the_short_way_of_one_zstd_block_is_that_of_all(
    size_bytes: int, form: str, at: int, value: int, cut: int
) -> None:
    """Both ways give the same output or the same error, also for a damaged header."""
    data = words(size_bytes)
    if form == "window and size":
        streamed = zstandard.ZstdCompressor().compressobj(size=size_bytes)
        packed = bytearray(streamed.compress(data) + streamed.flush())
    else:
        packed = bytearray(zstandard.ZstdCompressor(write_content_size=form == "single segment").compress(data))
    if at < len(packed):
        packed[at] = value
    del packed[len(packed) - cut :]
    codecs = Codecs(max_bytes=MIB)

    def outcome(decompress: Callable[[memoryview], memoryview]) -> object:
        try:
            return bytes(decompress(memoryview(packed)))
        except (FallsBackError, zstandard.ZstdError) as error:
            return type(error)

    assert outcome(codecs._unzstd) == outcome(codecs._unzstd_frames)


def test_large_zstd_frames_and_their_bound() -> None:
    data = words(500_000) * 12
    for packed in (zstd_streamed(data), zstandard.compress(data)):
        assert unpack(ZSTD, packed, max_bytes=len(data)) == data
        with pytest.raises(DecompressionLimit):
            unpack(ZSTD, packed, max_bytes=len(data) - 1)


# What is not a stream


def cuts(data: bytes) -> set[int]:
    return {*range(min(len(data), 60)), *range(60, len(data), 97), *range(max(0, len(data) - 20), len(data))}


@pytest.mark.parametrize("writer", sorted(set(WRITERS) - {"gzip, two members", "zstd two frames"}))
def test_every_cut_is_an_error(writer: str) -> None:
    codec, compress = WRITERS[writer]
    packed = compress(words(20_000))
    complete = {len(XERIAL_HEADER)} if packed.startswith(XERIAL_HEADER[:8]) else set()
    for stop in cuts(packed) - complete:
        with pytest.raises(CorruptSegment):
            unpack(codec, packed[:stop])


@pytest.mark.parametrize("writer", ["gzip, two members", "zstd two frames"])
def test_a_cut_between_two_members_is_the_first_one(writer: str) -> None:
    codec, compress = WRITERS[writer]
    packed = compress(words(5_000))
    whole = [stop for stop in range(len(packed)) if reads(codec, packed[:stop])]
    assert len(whole) == 1
    assert unpack(codec, packed[: whole[0]]) == words(5_000)[:100]


def reads(codec: int, data: bytes) -> bool:
    try:
        unpack(codec, data)
    except CorruptSegment:
        return False
    return True


@each_of("writer", WRITERS)
@each_of("tail", [b"\x00", b"garbage", bytes(40)])
def test_bytes_behind_the_end(writer: str, tail: bytes) -> None:
    """Java's reader, by which brokers check batches, ignores them after gzip members and after an LZ4 frame."""
    codec, compress = WRITERS[writer]
    packed = compress(words(5_000)) + tail
    if codec in (GZIP, LZ4):
        assert unpack(codec, packed) == words(5_000)
    else:
        with pytest.raises(CorruptSegment):
            unpack(codec, packed)


@pytest.mark.parametrize("tail", [b"\x1f", b"\x1f\x8b", b"\x1f\x8b\x08", b"\x1f\x8b\x08" + bytes(30)])
def test_another_gzip_member_has_to_be_whole(tail: bytes) -> None:
    with pytest.raises(CorruptSegment):
        unpack(GZIP, gzip.compress(words(5_000)) + tail)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@given(data=st.binary(max_size=80))
@examples(150)
def test_arbitrary_bytes_raise_nothing_else(codec: int, data: bytes) -> None:
    starts = {GZIP: b"\x1f\x8b\x08\0", SNAPPY: XERIAL_HEADER, LZ4: LZ4_HEADER, ZSTD: ZSTD_MAGIC}
    for start in (b"", starts[codec]):
        with suppress(CorruptSegment, UnsupportedFormat, DecompressionLimit):
            unpack(codec, start + data, max_bytes=MIB)


@writers
@given(flips=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 255)), min_size=1, max_size=4))
@examples(40)
def test_damage_raises_nothing_else(writer: str, flips: list[tuple[int, int]]) -> None:
    codec, compress = WRITERS[writer]
    packed = bytearray(compress(words(4_000)))
    for at, mask in flips:
        packed[at % len(packed)] ^= mask
    with suppress(CorruptSegment, UnsupportedFormat, DecompressionLimit):
        unpack(codec, bytes(packed), max_bytes=MIB)


def test_errors_name_the_codec_and_keep_the_cause() -> None:
    with pytest.raises(CorruptSegment, match="zstd data cannot be decompressed") as raised:
        unpack(ZSTD, zstd_frame((COMPRESSED, b"\xff" * 20, 20)))
    assert isinstance(raised.value.__cause__, zstandard.ZstdError)


# gzip


def test_many_gzip_members_cost_no_copies_of_the_rest() -> None:
    member = gzip.compress(b"ab")
    assert unpack(GZIP, member * 20_000) == b"ab" * 20_000


def test_gzip_of_several_members_is_bounded_in_all() -> None:
    with pytest.raises(DecompressionLimit):
        unpack(GZIP, gzip.compress(bytes(600)) + gzip.compress(bytes(500)), max_bytes=1_000)


def test_the_largest_bound_is_no_fault_of_the_stream() -> None:
    assert unpack(GZIP, gzip.compress(b"ab") * 2, max_bytes=2**63 - 1) == b"abab"


# snappy


@pytest.mark.parametrize("size", [0, -1, -(2**31), 5, 2**31 - 1])
def test_xerial_block_lengths(size: int) -> None:
    with pytest.raises(CorruptSegment, match="snappy block of"):
        unpack(SNAPPY, XERIAL_HEADER + pack(">i", size) + b"abcd")


@pytest.mark.parametrize("size_bytes", [8, 15])
def test_a_cut_xerial_header(size_bytes: int) -> None:
    with pytest.raises(CorruptSegment, match="xerial header"):
        unpack(SNAPPY, XERIAL_HEADER[:size_bytes])


def test_a_cut_xerial_length() -> None:
    with pytest.raises(CorruptSegment, match="inside a block length"):
        unpack(SNAPPY, xerial(b"abc") + b"\0\0")


def test_several_xerial_streams_are_one() -> None:
    assert unpack(SNAPPY, xerial(b"abc") + xerial(words(5_000), 1_000) + xerial(b"")) == b"abc" + words(5_000)


@pytest.mark.parametrize("size_bytes", [3, 8, 15])
def test_a_cut_header_of_another_xerial_stream(size_bytes: int) -> None:
    with pytest.raises(CorruptSegment, match=r"xerial header|block length"):
        unpack(SNAPPY, xerial(b"abc") + XERIAL_HEADER[:size_bytes])


def test_a_xerial_stream_of_no_blocks_is_empty() -> None:
    assert unpack(SNAPPY, XERIAL_HEADER) == b""


def test_a_snappy_block_cannot_declare_more_than_its_elements_can_make() -> None:
    densest = snappy_raw(bytes(64 * KIB))
    assert unpack(SNAPPY, densest) == bytes(64 * KIB)
    with pytest.raises(CorruptSegment, match="declares 1048576 bytes, more than 4 bytes can hold"):
        unpack(SNAPPY, b"\x80\x80\x40\x00")


def test_the_most_that_a_snappy_block_may_declare() -> None:
    """A block may declare 22 times its own size. The decompressor then tells whether it has so many bytes."""
    for declared, says in ((b"\xdc\x01", "declares 220 bytes"), (b"\xdd\x01", "declares 221 bytes, more than 10")):
        block = declared + bytes(8)
        with pytest.raises(CorruptSegment) as caught:
            unpack(SNAPPY, block)
        assert (says in str(caught.value)) == (declared == b"\xdd\x01"), caught.value


# lz4


def test_lz4_of_message_format_0_has_a_wrong_header_checksum() -> None:
    packed = bytearray(lz4_kafka(words(1_000)))
    packed[6] = 0x1A
    assert unpack(LZ4, bytes(packed), lz4_v0=True) == words(1_000)
    with pytest.raises(CorruptSegment, match="header has checksum 0x1a, not 0x82"):
        unpack(LZ4, bytes(packed))


@pytest.mark.parametrize(
    ("frame", "content"),
    [
        ("04224d18684005000000000000006105000080616263646500000000", b"abcde"),
        (
            "04224d186c406000000000000000ff120000008f6162636465666768080040506465666768000000001d5aea85",
            b"abcdefgh" * 12,
        ),
        ("04224d1860408200000000", b""),
    ],
)
def test_lz4_frames_of_the_reference_library_with_content_sizes(frame: str, content: bytes) -> None:
    assert unpack(LZ4, bytes.fromhex(frame)) == content


def test_an_lz4_content_size_has_to_be_true() -> None:
    packed = LZ4_HEADER[:4] + b"\x68\x40" + pack("<Q", 6) + b"\0" + pack("<I", 5 | 1 << 31) + b"abcde" + bytes(4)
    with pytest.raises(CorruptSegment, match="declares 6 bytes and holds 5"):
        unpack(LZ4, packed, lz4_v0=True)


@pytest.mark.parametrize(
    ("flags", "descriptor"),
    [(0x20, 0x40), (0xA0, 0x40), (0xE0, 0x40), (0x62, 0x40), (0x61, 0x40), (0x60, 0x30), (0x60, 0xC0), (0x60, 0x41)],
)
def test_lz4_headers_that_are_not_legal(flags: int, descriptor: int) -> None:
    with pytest.raises(CorruptSegment, match="not legal"):
        unpack(LZ4, LZ4_HEADER[:4] + bytes([flags, descriptor, 0]) + bytes(12), lz4_v0=True)


@pytest.mark.parametrize("descriptor", [0x40, 0x50, 0x60, 0x70])
def test_lz4_block_sizes(descriptor: int) -> None:
    most_bytes = 1 << (8 + 2 * (descriptor >> 4))
    head = LZ4_HEADER[:4] + bytes([0x60, descriptor, 0])
    data = words(most_bytes)
    assert unpack(LZ4, head + lz4_block(data) + bytes(4), lz4_v0=True) == data
    with pytest.raises(CorruptSegment, match="cannot be decompressed"):
        unpack(LZ4, head + lz4_block(bytes(most_bytes + 1)) + bytes(4), lz4_v0=True)
    with pytest.raises(CorruptSegment, match="larger than its frame allows"):
        unpack(LZ4, head + pack("<I", most_bytes + 1 | 1 << 31) + bytes(most_bytes + 5), lz4_v0=True)


@each_of("first", [b"", b"abc", b"abcdefghijklmnopq", words(300), words(70 * KIB)])
@each_of("size_bytes", [1, 3, 11, 12, 13, 14, 15, 269, 270, 271, 600])
def test_linked_lz4_blocks_copy_from_earlier_output(first: bytes, size_bytes: int) -> None:
    """The second block has literals, then a copy of the ten bytes before them, then five literals."""
    first = first[-(64 * KIB) :]
    literals = random.Random(3).randbytes(size_bytes)
    distance = size_bytes + min(len(first), 10)
    copied = (first[-10:] + literals) * 10
    extra = b"" if size_bytes < 15 else b"\xff" * ((size_bytes - 15) // 255) + bytes([(size_bytes - 15) % 255])
    second = bytes([min(size_bytes, 15) << 4 | 6]) + extra + literals + pack("<H", distance) + b"\xf0\x00"
    second += bytes(range(15))
    frame = bytes.fromhex("04224d18404000") + (pack("<I", len(first) | 1 << 31) + first if first else b"")
    frame += pack("<I", len(second)) + second + bytes(4)
    assert unpack(LZ4, frame, lz4_v0=True) == first + literals + copied[:10] + bytes(range(15))


@pytest.mark.parametrize("block", [b"", b"\xf0", b"\xf0\xff\xff", b"\xf0\xff"])
def test_linked_lz4_blocks_that_end_in_their_first_length(block: bytes) -> None:
    frame = bytes.fromhex("04224d18404000") + pack("<I", 3 | 1 << 31) + b"abc"
    frame += pack("<I", len(block) or 1 << 31) + block + bytes(4)
    if block:
        with pytest.raises(CorruptSegment):
            unpack(LZ4, frame, lz4_v0=True)
    else:
        assert unpack(LZ4, frame, lz4_v0=True) == b"abc"


# zstd


def test_zstd_skippable_frames_are_skipped() -> None:
    skipped = bytes.fromhex("5a2a4d18") + pack("<I", 3) + b"abc"
    assert unpack(ZSTD, skipped + zstd_streamed(b"data") + skipped + skipped) == b"data"
    assert unpack(ZSTD, skipped) == b""
    with pytest.raises(CorruptSegment, match="inside a skippable frame"):
        unpack(ZSTD, skipped[:-1])


def test_zstd_blocks_made_by_hand() -> None:
    assert unpack(ZSTD, zstd_frame((RAW, b"abc", 3), (RLE, b"x", 5), (RAW, b"", 0))) == b"abcxxxxx"


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (zstd_frame((RESERVED, b"abc", 3)), "type 3"),
        (zstd_frame((RAW, bytes(131_073), 131_073)), "131073 bytes"),
        (zstd_frame((RAW, bytes(2_000), 2_000), window=0), "2000 bytes"),
        (zstd_frame((RAW, b"abc", 3), flags=4), "ends early"),
        (zstd_frame((RAW, b"abc", 3), flags=4, tail=bytes(4)), "cannot be decompressed"),
        (zstd_frame((RAW, b"abc", 3), flags=8), "cannot be decompressed"),
        (zstd_frame((RAW, b"abc", 3)) + b"ZSTD", "no zstd frame at byte 12"),
        (ZSTD_MAGIC + b"\x20\x09" + b"\x19\0\0abc", "declares 9 bytes and holds at most 3"),
        (ZSTD_MAGIC + b"\x20\x02" + b"\x11\0\0ab\x01\0\0", "no zstd frame"),
        (ZSTD_MAGIC + b"\x01\x58\x07" + b"\x19\0\0abc", "cannot be decompressed"),
        (b"", "no zstd frame"),
    ],
)
def test_zstd_frames_that_break_the_format(packed: bytes, says: str) -> None:
    with pytest.raises(CorruptSegment, match=says):
        unpack(ZSTD, packed)


def test_the_zstd_window_is_bounded() -> None:
    packed = zstd_frame((RAW, b"abc", 3), window=0x88)
    assert zstandard.get_frame_parameters(packed).window_size == 128 * MIB
    assert unpack(ZSTD, packed) == b"abc"
    with pytest.raises(UnsupportedFormat, match="window of"):
        unpack(ZSTD, zstd_frame((RAW, b"abc", 3), window=0x89))


@pytest.mark.parametrize("window", [0x00, 0x08, 0x89, 0x90, 0xFF])
def test_the_zstd_window_counts_beside_a_declared_size(window: int) -> None:
    """The decoder of zstd may pass over a window if it has the size and all bytes."""
    single = zstandard.ZstdCompressor().compress(words(3_000))
    block = single[zstandard.frame_header_size(single) :]
    packed = ZSTD_MAGIC + bytes([0x80, window]) + (3_000).to_bytes(4, "little") + block
    with pytest.raises((CorruptSegment, UnsupportedFormat)):
        unpack(ZSTD, packed)
    usual = packed[:5] + b"\x88" + packed[6:]
    assert unpack(ZSTD, usual) == words(3_000)

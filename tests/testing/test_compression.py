"""The codec writers: each frame is what its client writes, and foreign decompressors read it."""

from __future__ import annotations

import gzip
import random

import cramjam
import pytest
import zstandard

from remote_fetch.testing.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress

NOISE = random.Random(1).randbytes(70_000)
SAMPLES = [b"", b"a", b"ab" * 100_000, NOISE]


@pytest.mark.parametrize("data", SAMPLES, ids=len)
class TestForeignDecompressors:
    def test_none(self, data: bytes) -> None:
        assert compress(NONE, data) == data

    def test_gzip(self, data: bytes) -> None:
        assert gzip.decompress(compress(GZIP, data)) == data

    def test_raw_snappy(self, data: bytes) -> None:
        assert bytes(cramjam.snappy.decompress_raw(compress(SNAPPY, data))) == data

    def test_xerial_snappy(self, data: bytes) -> None:
        packed = compress(SNAPPY, data, snappy_framing="xerial")
        assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
        out, at = b"", 16
        while at < len(packed):
            size = int.from_bytes(packed[at : at + 4], "big")
            out += bytes(cramjam.snappy.decompress_raw(packed[at + 4 : at + 4 + size]))
            at += 4 + size
        assert out == data

    def test_lz4(self, data: bytes) -> None:
        assert bytes(cramjam.lz4.decompress(compress(LZ4, data))) == data

    def test_zstd(self, data: bytes) -> None:
        assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(ZSTD, data)) == data


def test_the_same_input_gives_the_same_bytes() -> None:
    assert compress(GZIP, b"x" * 99) == compress(GZIP, b"x" * 99)


def test_zstd_frames_do_not_declare_their_size() -> None:
    assert zstandard.get_frame_parameters(compress(ZSTD, b"x" * 99)).content_size == zstandard.CONTENTSIZE_UNKNOWN


def test_lz4_has_the_header_of_kafkas_writer() -> None:
    assert compress(LZ4, b"x" * 99)[:7] == bytes.fromhex("04224d18604082")


def test_lz4_stores_incompressible_blocks() -> None:
    assert NOISE[: 64 << 10] in compress(LZ4, NOISE)


def test_lz4_of_magic_0_has_a_header_checksum_that_only_kafka_accepts() -> None:
    packed = compress(LZ4, b"x" * 99, lz4_magic_0=True)
    with pytest.raises(cramjam.DecompressionError):
        cramjam.lz4.decompress(packed)
    assert packed[:6] + b"\x82" + packed[7:] == compress(LZ4, b"x" * 99)


def test_there_is_no_codec_5() -> None:
    with pytest.raises(ValueError, match="codec 5"):
        compress(5, b"x")

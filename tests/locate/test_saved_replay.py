"""Saved replays: lossless, and safe to load whatever the bytes. That they are complete is shown in test_timeline.py."""

from __future__ import annotations

import zlib
from dataclasses import replace
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.locate.saved_replay import SavedReplay, dump_replay, load_replay
from remote_fetch.locate.snapshot import SnapshotOrigin
from remote_fetch.locate.timeline import Timeline
from remote_fetch.locate.uploads import LooseUpload, Rest
from remote_fetch.model import RemoteLogSegmentState, Uuid
from tests.locate.metadata_double import DATA_ID, OTHER_ID, PARTITIONS, segment
from tests.searches import examples

STARTED, FINISHED, DELETING, _ = RemoteLogSegmentState
ORIGIN = SnapshotOrigin("cluster", OTHER_ID, 4, ((2, 77),), taken_at_ms=5)
REST = Rest(
    (
        LooseUpload(bytes(16), FINISHED, 5, 3, (FINISHED, 1, 2, b"custom")),
        LooseUpload(b"x" * 16, DELETING, -1, -1, None),
        LooseUpload(b"y" * 16, STARTED, -1, -1, (STARTED, 1, 2, None)),
    ),
    (b"g" * 16, b"h" * 16),
    ((b"key", b"k" * 16), (b"", b"l" * 16)),
    ((b"e" * 16, 9),),
)
TIMELINE = Timeline(PARTITIONS[0], (segment(PARTITIONS[0], 0),), (4,), next_metadata_offset=6, upload_epochs=(2,))
SAVED = SavedReplay(ORIGIN, DATA_ID, 3, 1, (TIMELINE, Timeline(PARTITIONS[1], (), ())), (REST, Rest()))
DATA = dump_replay(SAVED)
HEADER_BYTES = 18
BODY = zlib.decompress(DATA[HEADER_BYTES:])


def wrapped(body: bytes) -> bytes:
    """A file with this body whose checksum is right."""
    covered = pack(">Q", len(body)) + zlib.compress(body, 0)
    return pack(">4sHI", b"RFRP", 1, zlib.crc32(covered)) + covered


def test_load_returns_the_dumped_replay() -> None:
    assert load_replay(DATA) == load_replay(memoryview(DATA)) == load_replay(wrapped(BODY)) == SAVED
    empty = SavedReplay(ORIGIN, None, -1, 0, (), ())
    assert load_replay(dump_replay(empty)) == empty
    assert (SAVED.number, SAVED.next_offset) == (2, 77)


def test_any_damaged_byte_is_noticed() -> None:
    for at in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[at] ^= 0x10
        with pytest.raises((CorruptSegment, UnsupportedFormat)):
            load_replay(damaged)
    with pytest.raises(UnsupportedFormat, match="saved replay of version 2; version 1 is known"):
        load_replay(DATA[:4] + b"\0\2" + DATA[6:])


def test_every_cut_body_is_corrupt() -> None:
    for length in range(len(BODY)):
        with pytest.raises((CorruptSegment, UnsupportedFormat)):
            load_replay(wrapped(BODY[:length]))
    with pytest.raises(CorruptSegment, match="saved replay: 1 bytes are left over"):
        load_replay(wrapped(BODY + b"\0"))


@examples(300)
@given(changes=st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_hostile_bodies_raise_only_our_errors(changes: list[tuple[int, int]]) -> None:
    body = bytearray(BODY)
    for at, byte in changes:
        body[at] = byte
    try:
        load_replay(wrapped(bytes(body)))
    except (CorruptSegment, UnsupportedFormat):
        return


def test_the_body_is_bounded() -> None:
    with pytest.raises(CorruptSegment, match=f"body of {len(BODY)} bytes, the bound is {len(BODY) - 1}"):
        load_replay(DATA, max_body_bytes=len(BODY) - 1)


def test_contradictions_are_refused() -> None:
    for changed, message in (
        (replace(SAVED, origin=replace(ORIGIN, next_offsets=())), "one metadata partition"),
        (replace(SAVED, origin=replace(ORIGIN, next_offsets=((1, 2), (3, 4)))), "one metadata partition"),
        (replace(SAVED, origin=replace(ORIGIN, next_offsets=((1, -2),))), "one metadata partition"),
        (replace(SAVED, malformed_records=-1), "one metadata partition"),
        (replace(SAVED, timelines=(TIMELINE, TIMELINE)), "a partition has two timelines"),
        (replace(SAVED, topic_id=Uuid(bytes(16))), "belongs to another topic"),
    ):
        with pytest.raises(CorruptSegment, match=message):
            load_replay(dump_replay(changed))


def test_an_unknown_state_is_refused() -> None:
    states_at = BODY.index(bytes(16) + b"x" * 16 + b"y" * 16) + 48
    column = BODY[states_at : states_at + 24]
    assert column[21:] == bytes([FINISHED, DELETING, STARTED])
    with pytest.raises(CorruptSegment, match="a segment in state 9"):
        load_replay(wrapped(BODY[: states_at + 21] + b"\x09" + BODY[states_at + 22 :]))

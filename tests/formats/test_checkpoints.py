"""Leader-epoch checkpoints and producer snapshots: those of real brokers, and every way of being wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.errors import CorruptSegment, UnsupportedFormat
from remote_fetch.formats.batches import BatchFramer
from remote_fetch.formats.checkpoints import ProducerState, parse_leader_epoch_checkpoint, parse_producer_snapshot
from remote_fetch.model import LeaderEpoch
from tests.cases import each_of
from tests.searches import examples

GOLDENS = Path(__file__).parents[1] / "golden" / "data"
LOGS = sorted(GOLDENS.glob("*/remote/**/*.log"))


@each_of("log", LOGS, ids=lambda log: f"{log.parts[-4]}/{log.parent.name}/{log.name[:20]}")
def test_golden_state_files_agree_with_their_segment(log: Path) -> None:
    epochs = parse_leader_epoch_checkpoint(log.with_suffix(".leader_epoch_checkpoint").read_bytes())
    producers = {
        state.producer_id: state for state in parse_producer_snapshot(log.with_suffix(".snapshot").read_bytes())
    }
    framer = BatchFramer(0)
    framer.feed(memoryview(log.read_bytes()))
    last: dict[int, tuple[int, int]] = {}
    while (batch := framer.next_batch()) is not None:
        header = batch.header
        by_checkpoint = [entry.epoch for entry in epochs if entry.start_offset <= header.base_offset][-1]
        assert header.leader_epoch == by_checkpoint
        if header.producer_id >= 0 and not header.is_control:
            last[header.producer_id] = (header.last_offset, header.last_offset - header.base_offset)
    for producer_id, (last_offset, offset_delta) in last.items():
        state = producers[producer_id]
        assert state.last_offset == -1 or (state.last_offset, state.offset_delta) == (last_offset, offset_delta)


def test_golden_with_two_leader_epochs() -> None:
    paths = GOLDENS.glob("*/remote/**/*.leader_epoch_checkpoint")
    assert max(len(parse_leader_epoch_checkpoint(path.read_bytes())) for path in paths) == 2


def test_golden_with_an_open_transaction() -> None:
    paths = GOLDENS.glob("*/remote/**/*.snapshot")
    firsts = [state.current_txn_first_offset for path in paths for state in parse_producer_snapshot(path.read_bytes())]
    assert -1 in firsts
    assert max(firsts) > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", ()),
        (b"\n", ()),
        (b"0\n0\n", ()),
        (b"0\n1\n5 100\n", (LeaderEpoch(5, 100),)),
        (b"0\n2\n5 100\n6 100", (LeaderEpoch(5, 100), LeaderEpoch(6, 100))),
        (
            b"0\r\n2\r\n0 0\r\n2147483647\t9223372036854775807\r\n",
            (LeaderEpoch(0, 0), LeaderEpoch(2**31 - 1, 2**63 - 1)),
        ),
    ],
)
def test_leader_epoch_checkpoint(text: bytes, expected: tuple[LeaderEpoch, ...]) -> None:
    assert parse_leader_epoch_checkpoint(memoryview(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"0\n", "without a number of entries"),
        (b"zero\n0\n", "line 1: 'zero' is not a number"),
        (b"0\n-1\n", "line 2: '-1' is not a number"),
        (b"0\n1_0\n", "line 2: '1_0' is not a number"),
        (b"0\n" + b"9" * 5000, "line 2: '99999999999999999999' is not a number"),
        (b"0\n2\n1 2\n", "announces 2 entries and has 1"),
        (b"0\n1\n1 2\n3 4\n", "announces 1 entries and has 2"),
        (b"0\n1\n1\n", "line 3: two numbers expected"),
        (b"0\n1\n1 2 3\n", "line 3: two numbers expected"),
        (b"0\n1\n2147483648 2\n", "line 3: '2147483648' is not a number up to 2147483647"),
        (b"0\n1\n1 9223372036854775808\n", "is not a number up to 9223372036854775807"),
        (b"0\n2\n1 2\n1 3\n", "line 4: .* follows"),
        (b"0\n2\n1 2\n2 1\n", "line 4: .* follows"),
        (b"0\n1\n1 \xff\n", "byte 6 is not text"),
    ],
)
def test_corrupt_leader_epoch_checkpoint(text: bytes, message: str) -> None:
    with pytest.raises(CorruptSegment, match=message):
        parse_leader_epoch_checkpoint(text)


def test_leader_epoch_checkpoint_of_another_version() -> None:
    with pytest.raises(UnsupportedFormat, match="version 1"):
        parse_leader_epoch_checkpoint(b"1\n0\n")


def snapshot(*states: ProducerState, version: int = 1, count: int | None = None, extra: bytes = b"") -> bytes:
    entries = b"".join(
        struct.pack(
            ">qhiqiqiq",
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_offset,
            state.offset_delta,
            state.timestamp_ms,
            state.coordinator_epoch,
            state.current_txn_first_offset,
        )
        for state in states
    )
    covered = struct.pack(">i", len(states) if count is None else count) + entries + extra
    return struct.pack(">hI", version, crc32c(covered)) + covered


STATE = ProducerState(7, 3, 11, 1200, 4, 1_700_000_000_000, 2, 1190)


def test_producer_snapshot() -> None:
    other = ProducerState(8, 0, -1, -1, 0, -1, -1, -1)
    assert parse_producer_snapshot(snapshot(STATE, other)) == (STATE, other)
    assert parse_producer_snapshot(snapshot()) == ()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes is shorter than its header"),
        (snapshot(STATE)[:9], "9 bytes is shorter than its header"),
        (snapshot(STATE, count=2), "announces 2 entries in 46 bytes"),
        (snapshot(STATE, count=-1), "announces -1 entries in 46 bytes"),
        (snapshot(STATE, extra=b"\0"), "announces 1 entries in 47 bytes"),
        (snapshot(STATE)[:-1] + b"\x55", "its bytes give"),
    ],
)
def test_corrupt_producer_snapshot(data: bytes, message: str) -> None:
    with pytest.raises(CorruptSegment, match=message):
        parse_producer_snapshot(data)


def test_producer_snapshot_of_another_version() -> None:
    with pytest.raises(UnsupportedFormat, match="version 2"):
        parse_producer_snapshot(snapshot(STATE, version=2))


@examples(200)
@given(st.binary(max_size=80) | st.text("0123456789 \n-+", max_size=40).map(str.encode))
def test_any_bytes_raise_only_our_errors(data: bytes) -> None:
    for parse in (parse_leader_epoch_checkpoint, parse_producer_snapshot):
        try:
            parse(data)
        except (CorruptSegment, UnsupportedFormat):
            continue

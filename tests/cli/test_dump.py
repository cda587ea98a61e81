"""`dump`: line by line as Kafka's own tool, on recorded outputs of two versions, and what it does beyond the tool."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.cli import dump
from remote_fetch.cli.dump_lines import Lines
from remote_fetch.cli.dump_log import LogDump
from remote_fetch.errors import StorageTimeout
from remote_fetch.fetch.readahead import RangeReader
from remote_fetch.formats.codecs import Codecs
from remote_fetch.model import IndexType, RemoteLogSegmentMetadata
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from tests.golden.conftest import DATA, AivenTier, Tier

if TYPE_CHECKING:
    from tests.cli.conftest import Run

RECORDED = DATA.with_name("dump")
TIERS = {"4.3.1": "local-4.1", "3.9.2": "local-3.9"}
BASES = re.compile(r"^([0-9]{20})-[^.]*(\..*)$")
MEBIBYTE = 1 << 20


def text_of(version: str, kind: str = "") -> str:
    """The recorded output, with the lines of 3.9 that docs/howto/dump.md lists made as 4.3 prints them."""
    text = gzip.decompress((RECORDED / f"kafka-{version}{kind}.txt.gz").read_bytes()).decode()
    if version == "3.9.2":
        text = re.sub(r"(isValid: true crc: [0-9]+)\}", r"\1", text)
    return text


def tool_names(folder: Path, version: str) -> None:
    """The recorded files, and objects of a tier under the names that the tool wants."""
    shutil.copytree(RECORDED, folder, dirs_exist_ok=True)
    for topic in ("tx-roll", "lat"):
        for place in (DATA / TIERS[version] / "remote" / "kafka-tiered-storage").glob(f"{topic}-0-*"):
            (folder / f"{topic}-0").mkdir()
            for path in place.iterdir():
                name = BASES.match(path.name)
                assert name is not None
                shutil.copy(path, folder / f"{topic}-0" / f"{name[1]}{name[2]}")


@pytest.mark.parametrize("version", TIERS)
def test_files_line_by_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    tool_names(tmp_path, version)
    monkeypatch.chdir(tmp_path)
    theirs = text_of(version).splitlines()
    files = [line.removeprefix("Dumping ") for line in theirs if line.startswith("Dumping ")]
    assert {file.rpartition(".")[2] for file in files} == {"log", "index", "timeindex", "txnindex", "snapshot"}
    outcome = run("dump", *files)
    assert outcome.lines == theirs
    assert outcome.code == 1  # two of the files are damaged
    assert [line.split(":")[1].strip().split("/")[0] for line in outcome.stderr.splitlines()] == ["badcrc", "cut"]


@pytest.mark.parametrize("version", TIERS)
def test_metadata_records_line_by_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    shutil.copytree(RECORDED / "metadata", tmp_path / "metadata")
    monkeypatch.chdir(tmp_path)
    outcome = run("dump", "--remote-log-metadata-decoder", "metadata/00000000000000000000.log")
    ours = outcome.stdout.decode()
    if version == "3.9.2":  # which knows no such field
        ours = re.sub(r", txnIdxEmpty=(true|false)", "", ours)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert ours == text_of(version, ".metadata")


@pytest.mark.parametrize("name", TIERS.values())
def test_every_tiered_file_of_a_broker(run: Run, name: str) -> None:
    """The brokers' own tool read the local files, without keys and payloads, before the tier was read."""
    tier, place = Tier(name), ""
    theirs: dict[tuple[str, str], list[str]] = {}
    for line in tier.text("dump.txt.gz").splitlines():
        if line.startswith("##### "):
            place = line.split()[1]
        elif line.startswith("Dumping "):
            found = theirs.setdefault((place, line.split()[1]), [])
        else:
            found.append(line)
    compared = 0
    for path in sorted(Path(tier.url).glob("*/*/*")):
        match = BASES.match(path.name)
        file = (path.parent.name[:-23], f"{match[1]}{match[2]}") if match else ("", "")
        if path.suffix in (".snapshot", "") or file not in theirs:
            continue  # a snapshot has another name at the broker
        outcome = run("dump", "--no-data", str(path))
        assert (outcome.code, outcome.stderr) == (0, "")
        head, *ours = outcome.lines
        assert head == f"Dumping {path}"
        assert ours == [line for line in theirs[file] if not line.endswith(" is empty.")], path
        compared += 1
    assert compared > 40


def test_a_segment_by_its_offset_through_chunks_and_keys(run: Run) -> None:
    """Aiven's chunks, compressed and encrypted: the records are those that the broker gave."""
    tier = AivenTier("aiven-zstd-aes")
    options = [word for name, value in tier.config.items() for word in ("-X", f"{name}={value}")]
    outcome = run("dump", "-t", "tx", "-p", "0", "-o", "3", "-o", "5", "-J", "--binary", "base64", *options)
    assert (outcome.code, outcome.stderr) == (0, "")
    lines = [json.loads(line) for line in outcome.lines]
    records = [line for line in lines if line["kind"] == "record" and "endTxnMarker" not in line]
    theirs = {
        line["offset"]: (line["key"], line.get("value"))
        for line in tier.lines("records.read_uncommitted")
        if (line["topic"], line["partition"]) == ("tx", 0)
    }
    assert len(records) > 20
    for record in records:
        if record["valueSize"] <= 64:  # of a larger one a hash is recorded
            assert (record["key"], record["payload"]) == theirs[record["offset"]]
    kinds = {line["kind"] for line in lines}
    assert {"batch", "record", "offset", "timestamp", "producer-snapshot", "leader-epoch"} <= kinds
    files = list(dict.fromkeys(line["file"] for line in lines))
    assert all(file.startswith("0" * 20) for file in files)  # both offsets are in the same segment


def test_one_kind_of_a_named_segment(run: Run, bucket: str) -> None:
    outcome = run("dump", "--url", bucket, "-t", "shop", "-p", "0", "-o", "4", "--kind", "leader-epoch")
    head, *lines = outcome.lines
    assert outcome.code == 0
    assert re.fullmatch(r"Dumping 00000000000000000003-[\w-]{22}\.leader[_-]epoch[_-]checkpoint", head)
    assert lines == ["epoch: 0 startOffset: 0"]


def test_a_segment_that_a_listing_takes_to_reach_further(run: Run, bucket: str, tmp_path: Path) -> None:
    """Without the segment of 3 to 5, that of 0 to 2 seems to end where that of 6 begins."""
    tier = Path(shutil.copytree(bucket, tmp_path / "tier"))
    for file in tier.glob("*/shop-0-*/*03-*"):
        file.unlink()
    named = ("dump", "--url", str(tier), "-t", "shop", "-p", "0", "--kind", "log", "--shallow", "-o")
    outcome = run(*named, "4")
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "no segment holds this offset [shop-0, offset 4]" in outcome.stderr
    assert run(*named, "2").lines[1] == "Log starting offset: 0"
    (segment,) = tier.glob("*/shop-0-*/*00-*.log")
    segment.write_bytes(segment.read_bytes()[:-5])  # a damaged one is what `dump` is for
    outcome = run(*named, "4")
    assert (outcome.code, outcome.lines[1]) == (1, "Log starting offset: 0")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "give objects, or -t TOPIC -p PARTITION -o OFFSET"),
        (("-t", "shop", "x.log"), "give objects, or -t"),
        (("-t", "shop", "-p", "0"), "give -p PARTITION and -o OFFSET"),
        (("-t", "shop", "-p", "0", "-o", "900"), "no segment holds this offset"),
        (("-t", "shop", "-p", "9", "-o", "0"), "topic 'shop': no partition 9 was found; there are 0, 1"),
        (("x.log",), "--url goes with -t"),
    ],
)
def test_wrong_words(run: Run, bucket: str, words: tuple[str, ...], says: str) -> None:
    outcome = run("dump", "--url", bucket, *words)
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert says in outcome.stderr


def log(*batches: tuple[int, bytes]) -> bytes:
    builder = LogBuilder()
    for codec, value in batches:
        builder.append_batch([Record(0, 0, b"\xff", value, (("h", b"\xfe"),))], codec=codec, base_timestamp_ms=5)
    return b"".join(batch.data for batch in builder.batches)


def test_names_that_tell_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(log((0, b"v")))
    outcome = run("dump", str(tmp_path / "object"))
    assert outcome.code == 1
    assert "--kind" in outcome.stderr
    outcome = run("dump", "--kind", "log", "--shallow", str(tmp_path / "object"))
    assert (outcome.code, len(outcome.lines), outcome.lines[1]) == (0, 3, "Log starting offset: 0")
    (tmp_path / "a.index").write_bytes(bytes.fromhex("0000000100000100"))
    outcome = run("dump", str(tmp_path / "a.index"))
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "--base-offset" in outcome.stderr
    assert run("dump", "--base-offset", "7", str(tmp_path / "a.index")).lines[1:] == ["offset: 8 position: 256"]
    for wrong in ("-5", str(2**63 - 1)):
        outcome = run("dump", "--base-offset", wrong, str(tmp_path / "a.index"))
        assert (outcome.code, outcome.stdout) == (1, b"")
        assert f"--base-offset {wrong}: no offset is below 0 or above 2^63 - 2" in outcome.stderr


def test_a_name_with_a_number_that_is_no_offset(run: Run, tmp_path: Path) -> None:
    index, segment = tmp_path / f"{2**63 - 1:020d}.index", tmp_path / f"{2**64:020d}.log"
    index.write_bytes(bytes.fromhex("0000000100000100"))
    outcome = run("dump", str(index))
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "the name does not tell" in outcome.stderr
    segment.write_bytes(log((0, b"v")))
    assert run("dump", "--shallow", str(segment)).lines[1] == "Log starting offset: 0"


@pytest.mark.parametrize("name", ["a?b.log", "a#b.log", "a?b/c.log"])
def test_a_question_mark_is_a_part_of_a_files_name(run: Run, tmp_path: Path, name: str) -> None:
    there = tmp_path / name
    there.parent.mkdir(exist_ok=True)
    there.write_bytes(log((0, b"v")))
    outcome = run("dump", "--shallow", str(there))
    assert (outcome.code, outcome.lines[0]) == (0, f"Dumping {there}")
    missing = run("dump", str(tmp_path / "none?.log"))
    assert f"{tmp_path / 'none?.log'}: no such object [object none?.log]" in missing.stderr


def test_a_url_with_a_password_that_lacks_its_scheme(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "user:secret@host.log"
    outcome = run("dump", name)
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "no scheme such as https://" in outcome.stderr
    assert "secret" not in outcome.stderr
    Path(name).write_bytes(log((0, b"v")))
    assert run("dump", "--shallow", name).lines[0] == f"Dumping {name}"


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff.log"), "a\nb.log"])
def test_a_files_name_that_cannot_be_printed(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    outcome = run("dump", str(path))
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert f"{ascii(str(path))[1:-1]}: the name of the file has a character that cannot be printed" in outcome.stderr
    (tmp_path / "link.log").symlink_to(path)
    assert run("dump", str(tmp_path / "link.log")).code == 0


def test_of_a_url_the_query_and_the_user_are_not_shown(run: Run) -> None:
    outcome = run("dump", "sftp://me:s3cret@host/a?b.log=s3cret")
    assert outcome.code == 1
    assert outcome.stderr.startswith("remote-fetch: sftp://host/a: the name does not tell")


def test_an_object_that_cannot_be_read_is_said_and_the_next_one_follows(run: Run, tmp_path: Path) -> None:
    there = tmp_path / "00000000000000000000.log"
    there.write_bytes(log((0, b"v")))
    outcome = run("dump", str(tmp_path / "none.log"), str(there))
    assert (outcome.code, len(outcome.lines), outcome.lines[0]) == (1, 4, f"Dumping {there}")
    assert f"{tmp_path / 'none.log'}: no such object [object none.log]" in outcome.stderr


def test_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000-id.log"
    path.write_bytes(log((4, b"\xff")))
    batch, record = (json.loads(line) for line in run("dump", "--json", "--binary", "base64", str(path)).lines)
    assert (batch["file"], batch["kind"], batch["compresscodec"], batch["deleteHorizonMs"]) == (
        str(path), "batch", "zstd", None,
    )  # fmt: skip
    assert (record["kind"], record["CreateTime"], record["headerKeys"]) == ("record", 5, ["h"])
    shown = (record["key"], record["payload"], record["headers"][0][1])
    assert [base64.b64decode(one) for one in shown] == [b"\xff", b"\xff", b"\xfe"]
    record = json.loads(run("dump", "-J", str(path)).lines[1])
    assert record["payload"] == "\N{REPLACEMENT CHARACTER}"
    record = json.loads(run("dump", "-J", "--no-data", str(path)).lines[1])
    assert not {"key", "payload", "headers"} & record.keys()


def test_batches_across_ranges_and_bounds(run: Run, tmp_path: Path) -> None:
    """Ranges smaller than a batch change no line. A batch above the bound is an error that names its place."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log((0, b"a"), (0, bytes(2 * MEBIBYTE)), (0, b"b")))
    whole = run("dump", str(path))
    small = run("dump", "-X", f"fetch.remote.range.bytes={MEBIBYTE}", str(path))
    assert (whole.code, small.code, len(whole.lines)) == (0, 0, 8)
    assert small.stdout == whole.stdout
    bounded = run("dump", "-X", f"fetch.remote.max.batch.bytes={MEBIBYTE}", str(path))
    assert (bounded.code, bounded.lines) == (1, whole.lines[:4])
    assert "more than the bound" in bounded.stderr
    assert "position 7" in bounded.stderr
    inflated = tmp_path / "00000000000000000001.log"
    inflated.write_bytes(log((1, bytes(2 * MEBIBYTE)), (0, b"b")))
    bounded = run("dump", "-X", f"fetch.remote.max.decompressed.bytes={MEBIBYTE}", str(inflated))
    kinds = [line[:4] for line in bounded.lines]
    assert (bounded.code, kinds) == (1, ["Dump", "Log ", "base", "base", "| of"])
    assert "inflates to more" in bounded.stderr


@pytest.mark.parametrize(
    ("name", "data", "lines", "says"),
    [
        ("a.index", "00000001 00000040 00000002 00000080 00000001 00000099", 2, "follows"),
        ("a.index", "00000001 00000040 00000000 00000000", 1, ""),
        ("a.index", "00000001 00000040 0000", 1, "multiple"),
        ("a.index", "", 1, ""),
        ("a.timeindex", "0000000000000005 00000001 0000000000000004 00000002", 1, "follows"),
        ("a.txnindex", "0000" + "0000000000000001" * 4 + "0009" + "0000000000000002" * 4, 1, "version 9"),
        ("a.snapshot", "0001 00000000 00000001", 0, "checksum"),
        ("a.leader_epoch_checkpoint", b"0\n1\n5 x\n".hex(), 0, "line 3"),
    ],
)
def test_damaged_files(run: Run, tmp_path: Path, name: str, data: str, lines: int, says: str) -> None:
    (tmp_path / name).write_bytes(bytes.fromhex(data))
    outcome = run("dump", "--base-offset", "0", str(tmp_path / name))
    assert (outcome.code, len(outcome.lines) - 1) == (1 if says else 0, lines)
    assert says in outcome.stderr
    assert bool(outcome.stderr) == bool(says)


def test_records_that_break_their_batch(run: Run, tmp_path: Path) -> None:
    """The batch is framed, so that the lines go on with the next one."""
    path = tmp_path / "00000000000000000000.log"
    data = bytearray(log((0, b"first"), (0, b"second")))
    data[61] = 0x7F  # the length of the first record
    path.write_bytes(data)
    outcome = run("dump", str(path))
    assert (outcome.code, len(outcome.lines)) == (1, 5)
    assert "isvalid: false" in outcome.lines[2]
    assert "payload: second" in outcome.lines[4]
    assert "the record's length" in outcome.stderr


def test_memory_holds_one_range_and_one_batch() -> None:
    batch, count = log((0, bytes(MEBIBYTE))), 48
    cut = len(batch) // 2

    def ranges() -> Iterator[memoryview]:
        """Each batch lies across two ranges."""
        yield memoryview(batch[:cut])
        for _ in range(count - 1):
            yield memoryview(batch[cut:] + batch[:cut])
        yield memoryview(batch[cut:])

    output = io.BytesIO()
    dump = LogDump(Lines(output), Codecs(), 2 * MEBIBYTE, has_data=False)
    tracemalloc.start()
    try:
        assert dump.dump("f", 0, ranges())
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert output.getvalue().count(b"isvalid: true") == count
    assert peak_bytes < 10 * MEBIBYTE


def test_a_message_with_a_wrong_checksum(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000010.log"
    data = bytearray((RECORDED / "legacy" / path.name).read_bytes())
    data[33] ^= 1  # the last byte of the first message
    path.write_bytes(data)
    outcome = run("dump", str(path))
    assert outcome.code == 1
    assert outcome.lines[2].endswith("isvalid: false")
    assert "isValid: false crc: 592888119 key: key payload: valud" in outcome.lines[3]
    assert [line.split()[-1] for line in outcome.lines if "isvalid" in line].count("true") > 10
    assert "position 0" in outcome.stderr


def test_a_url_of_any_filesystem(run: Run) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/dump-test/00000000000000000000.log", log((0, b"v")))
    try:
        outcome = run("dump", "memory://dump-test/00000000000000000000.log")
    finally:
        memory.rm("/dump-test", recursive=True)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert "payload: v" in outcome.lines[-1]


@pytest.mark.parametrize("kind", ["log", "index"])
def test_a_store_that_fails_is_told_with_the_segment(
    run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def stalls(*_: object, **__: object) -> None:
        raise StorageTimeout("no answer from the store")

    def read_index(reader: RangeReader, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> memoryview | None:
        if segment.start_offset == 3:
            stalls()
        return read(reader, segment, index_type)  # a listing reads the index of the last segment

    read = RangeReader.read_index
    if kind == "log":
        monkeypatch.setattr(dump, "segment_bytes", stalls)
    else:
        monkeypatch.setattr(RangeReader, "read_index", read_index)
    words = () if kind == "log" else ("--kind", "offset")
    outcome = run("dump", "--url", bucket, "-t", "shop", "-p", "0", "-o", "4", *words)
    assert outcome.code == 1
    assert re.search(rf"no answer from the store \[object 0{{19}}3-\S+\.{kind}\]", outcome.stderr)

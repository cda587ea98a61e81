"""Message sets of formats 0 and 1 that a real broker moved to the tier, beside the reading of Kafka's own tool."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from remote_fetch import Counters, read_arrow
from remote_fetch.cli import main
from tests.cases import each_of

LEGACY = Path(__file__).with_name("legacy")
LOG = "00000000000000000000.log"
TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
RECORD = re.compile(r"^\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) ")
FIRST_OF_FORMAT_2, RECORDS_OF_A_CODEC, END = 240, 60, 270


def tool_lines() -> list[str]:
    """The recorded lines, made as the tool of 4.3 prints them."""
    text = gzip.decompress((LEGACY / "kafka-3.9.2.txt.gz").read_bytes()).decode()
    return re.sub(r"(isValid: true crc: [0-9]+)\}", r"\1", text).splitlines()


def size(item: bytes | None) -> int:
    return -1 if item is None else len(item)


@each_of("topic", ("v0", "v1"))
@each_of("isolation", ("read_uncommitted", "read_committed"))
def test_a_read_of_the_bucket(topic: str, isolation: str, decoder: None) -> None:
    counters = Counters()
    columns = ["offset", "timestampType", "timestampMs", "key", "value", "headers", "leaderEpoch"]
    rows = read_arrow(
        topic, columns=columns, isolation=isolation, config={"remote.storage.url": str(LEGACY / "remote")},
        observer=counters,
    ).read_all().to_pylist()  # fmt: skip
    lines = tool_lines()
    start = lines.index(f"Dumping {topic}/{LOG}") + 1
    ends = [number for number in range(start, len(lines)) if lines[number].startswith("Dumping ")]
    matches = [RECORD.match(line) for line in lines[start : min(ends, default=None)]]
    theirs = [(int(m[1]), m[2], *(int(m[field]) for field in (3, 4, 5))) for m in matches if m is not None]
    ours = [
        (row["offset"], TYPES[row["timestampType"]], row["timestampMs"], size(row["key"]), size(row["value"]))
        for row in rows
    ]
    assert ours == theirs
    assert len(ours) == END
    epochs = [row["leaderEpoch"] for row in rows]
    assert epochs == [-1] * FIRST_OF_FORMAT_2 + [0] * (END - FIRST_OF_FORMAT_2)
    contents = [(row["key"], row["value"], row["headers"]) for row in rows[:FIRST_OF_FORMAT_2]]
    assert contents == contents[:RECORDS_OF_A_CODEC] * 4
    assert counters.report().fallbacks == {}


def test_dump_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for topic in ("v0", "v1"):
        (tmp_path / topic).mkdir()
        (path,) = LEGACY.glob(f"remote/kafka-tiered-storage/{topic}-0-*/*.log")
        shutil.copy(path, tmp_path / topic / LOG)
    monkeypatch.chdir(tmp_path)
    assert main(["dump", "--no-data", f"v0/{LOG}", f"v1/{LOG}"]) == 0
    assert capfdbinary.readouterr().out.decode().splitlines() == tool_lines()

"""Charts of segments: where bytes stand on the axis, and which segments a plan reads."""

from __future__ import annotations

import errno
import io
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.cli import chart_option
from remote_fetch.cli.chart import chart_of, svg_chart, text_chart
from remote_fetch.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

if TYPE_CHECKING:
    from tests.cli.conftest import Run

HOUR_MS = 3_600_000
FIRST_MS = 1_700_000_000_000
SVG = "{http://www.w3.org/2000/svg}"


def segment(number: int, size_bytes: int, *, partition: int = 0, has_time: bool = True) -> RemoteLogSegmentMetadata:
    """A segment of 100 offsets and an hour."""
    place = TopicIdPartition(Uuid(bytes(16)), "shop", partition)
    segment_id = RemoteLogSegmentId(place, Uuid(bytes([partition, number, *[1] * 14])))
    end_ms = FIRST_MS + (number + 1) * HOUR_MS if has_time else -1
    return RemoteLogSegmentMetadata(segment_id, number * 100, number * 100 + 99, size_bytes, end_ms)


def test_the_height_stands_for_the_bytes_of_a_column() -> None:
    chart = chart_of(
        [[segment(0, 800), segment(1, 400), segment(2, 0), segment(3, 800)], [segment(1, 20, partition=1)]]
    )
    lines = text_chart(chart, 48)
    assert lines[:2] == ["shop-0  " + "█" * 10 + "▄" * 10 + " " * 10 + "█" * 10, "shop-1  " + " " * 20 + "▂"]
    assert lines[2].split() == ["about", "2023-11-14T22:13", "2023-11-15T02:13"]
    assert all(len(line) <= 48 for line in lines[:3])
    assert lines[3].strip() == "█ 80 B of segments in a column"


def test_segments_that_are_not_read_are_dots() -> None:
    segments = [segment(0, 800), segment(1, 800)]
    assert text_chart(chart_of([segments], {segments[1].segment_id}), 28)[0] == "shop-0  ··········██████████"
    assert (
        text_chart(chart_of([segments], {segments[1].segment_id}), 28, unicode=False)[0]
        == "shop-0  __________##########"
    )


def test_offsets_stand_for_times_that_are_unknown() -> None:
    lines = text_chart(chart_of([[segment(0, 800), segment(1, 800, has_time=False)]]), 40)
    assert lines[1].split("  ", 1)[1].split() == ["offset", "0", "offset", "200"]


def test_nothing_to_draw() -> None:
    assert len(text_chart(chart_of([]), 40)) == 2
    assert "Nothing" in svg_chart(chart_of([]), "Nothing")


def test_a_picture_has_a_rectangle_for_each_segment() -> None:
    segments = [segment(0, 800), segment(1, 400)]
    root = ET.fromstring(svg_chart(chart_of([segments], {segments[0].segment_id}), "a < b"))
    rectangles = [one for one in root.iter(f"{SVG}rect") if one.get("class") != "back"]
    assert [one.get("class") for one in rectangles] == ["read", "kept"]
    assert float(rectangles[0].get("height", "")) == 2 * float(rectangles[1].get("height", ""))
    assert [one.findtext(f"{SVG}title") for one in rectangles] == [
        "offsets 0 to 99, 800 B", "offsets 100 to 199, 400 B"
    ]  # fmt: skip
    assert root.findtext(f"{SVG}text") == "a < b"


class Full(io.StringIO):
    """A file on a disk that becomes full."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        pass


def test_no_part_of_a_picture_is_left(run: Run, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str, mode: str, encoding: str) -> Full:
        Path(name).touch()
        return Full()

    monkeypatch.setattr(chart_option, "open", opened, raising=False)
    outcome = run("ls", "--url", bucket, "--chart", str(tmp_path / "a.svg"))
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert f"--chart {tmp_path / 'a.svg'}: No space left on device" in outcome.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "link.svg").symlink_to(tmp_path / "a.svg")
    assert run("ls", "--url", bucket, "--chart", str(tmp_path / "link.svg")).code == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "link.svg"]


@pytest.mark.parametrize("command", ["ls", "plan"])
def test_commands_draw(run: Run, bucket: str, tmp_path: Path, command: str) -> None:
    drawn = run(command, "--url", bucket, "-t", "shop", "--chart")
    assert drawn.code == 0, drawn.stderr
    assert [line.split()[0] for line in drawn.lines[:2]] == ["shop-0", "shop-1"]
    assert "offset 0" in drawn.lines[2]
    file = tmp_path / "shop.svg"
    beside = run(command, "--url", bucket, "-t", "shop", "--chart", str(file))
    assert beside.stdout == run(command, "--url", bucket, "-t", "shop").stdout
    assert file.read_text(encoding="utf-8").startswith("<svg ")
    for argv, said in ((("--chart", "shop.png"), "name it FILE.svg"), (("--chart", "-J"), "exclude each other")):
        refused = run(command, "--url", bucket, "-t", "shop", *argv)
        assert refused.code == 1
        assert said in refused.stderr

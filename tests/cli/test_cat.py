"""`cat`: the records as text and as JSON, how many of them, and the report."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from remote_fetch.cli import cat
from remote_fetch.model import Uuid
from remote_fetch.session.session import Session
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

if TYPE_CHECKING:
    from tests.cli.conftest import Run

FIRST_MS = 1_700_000_000_000
JSON_OF_8 = (
    b'{"topic":"shop","partition":0,"offset":8,"tstype":"create","ts":1700000008000,"broker":-1,'
    b'"key":"k8","payload":"v8"}'
)


def test_payloads_and_nothing_else(run: Run, bucket: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-q")
    assert outcome.stdout == b"v0\n\n\x80 50%\n\nv6\nv7\nv8\ny\n\n"
    assert (outcome.code, outcome.stderr) == (0, "")


def test_a_timestamp_is_printed_as_the_record_has_it(run: Run, tmp_path: Path) -> None:
    """Times beyond the microseconds of a column are printed too, as kcat prints milliseconds."""
    nanoseconds = FIRST_MS * 10**6
    log = LogBuilder("late")
    log.append_batch([Record(0, value=b"v")], base_timestamp_ms=nanoseconds)
    log.roll()
    log.append_batch([Record(0, value=b"w")], base_timestamp_ms=-(2**63))
    log.roll()
    log.append_batch([Record(0)])
    write_kafka_local(tmp_path, log.segments())
    argv = ("cat", "--url", str(tmp_path), "-t", "late", "--end", "2")
    assert run(*argv, "-f", "%T ").stdout == f"{nanoseconds} {-(2**63)} ".encode()
    assert [json.loads(line)["ts"] for line in run(*argv, "-J").stdout.splitlines()] == [nanoseconds, -(2**63)]


def test_isolation(run: Run, bucket: str) -> None:
    argv = ("cat", "--url", bucket, "-t", "shop", "-p", "0", "-f", "%o ")
    assert run(*argv).stdout == b"0 1 2 6 7 8 "
    assert run(*argv, "--isolation", "read_committed").stdout == b"0 1 2 6 7 8 "
    assert run(*argv, "--isolation", "read_uncommitted").stdout == b"0 1 2 3 4 6 7 8 "
    as_in_kcat = ["-X", "isolation.level=read_uncommitted"]
    assert run(*argv, *as_in_kcat).stdout == b"0 1 2 3 4 6 7 8 "
    assert run(*argv, *as_in_kcat, "--isolation", "read_committed").stdout == b"0 1 2 6 7 8 "


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        pytest.param(("-c", "2", "-o", "6"), b"v6\nv7\n", id="-c"),
        pytest.param(("-c", "0"), b"", id="-c 0"),
        pytest.param(("-c", "99", "-o", "7"), b"v7\nv8\n", id="-c more than there are"),
        pytest.param(("-e", "-o", "7"), b"v7\nv8\n", id="-e"),
        pytest.param(("-K", ":", "-o", "7"), b"k7:v7\nk8:v8\n", id="-K"),
        pytest.param(("-K", r"\t", "-D", r"\x00", "-o", "7"), b"k7\tv7\0k8\tv8\0", id="-K and -D with escapes"),
        pytest.param(("-K", "%", "-D", "%o", "-o", "8"), b"k8%v8%o", id="delimiters are no format"),
        pytest.param(("-D", "", "-o", "7"), b"v7v8", id="no delimiter"),
        pytest.param(("-u", "-o", "7"), b"v7\nv8\n", id="-u"),
        pytest.param(("-J", "-D", ";", "-o", "8"), JSON_OF_8 + b";", id="-J and -D"),
        pytest.param(("-s", "key=cs", "-s", "value=c$", "-K", ":", "-s", "value=cc", "-o", "8"), b"k8:v8\n", id="-s"),
        pytest.param(("-Z", "-K", "=", "--end", "3"), b"k0=v0\nNULL=NULL\n\xff\xfe=\x80 50%\n\n", id="-Z"),
        pytest.param(("-f", "%k:%s;", "-K", "!", "-D", "!", "-o", "7"), b"k7:v7;k8:v8;", id="-f goes before -K and -D"),
        pytest.param(("-Z", "-f", "%k ", "--end", "3"), b"k0 NULL \xff\xfe ", id="-Z and -f"),
    ],
)
def test_output_options(run: Run, bucket: str, argv: tuple[str, ...], output: bytes) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-p", "0", "-q", *argv)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, output, "")


def test_a_count_over_several_arrow_batches(run: Run, tmp_path: Path) -> None:
    bucket = Path(__file__).parents[1] / "golden" / "data" / "local-4.1" / "remote"
    argv = ("cat", "--url", str(bucket), "-t", "codecs", "-f", "%p ", "-q")
    every = run(*argv).stdout.split()
    assert len(every) == 320
    for count in (1, 63, 64, 200, 320, 321):
        assert run(*argv, "-c", str(count)).stdout.split() == every[:count]


def test_json_has_kcats_fields(run: Run, bucket: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-J", "-q")
    rows = [json.loads(line) for line in outcome.lines]
    common = {"topic": "shop", "partition": 0, "tstype": "create", "broker": -1}
    assert rows[:3] == [
        {**common, "offset": 0, "ts": FIRST_MS, "headers": ["h", "1"], "key": "k0", "payload": "v0"},
        {
            **common,
            "offset": 1,
            "ts": FIRST_MS + 1000,
            "headers": ["n", None, "h", "\ufffd"],
            "key": None,
            "payload": None,
        },
        {
            **common,
            "offset": 2,
            "ts": FIRST_MS + 2000,
            "key": "\ufffd\ufffd",
            "payload": "\ufffd 50%\n",
        },
    ]
    assert rows[-1] == {
        "topic": "shop",
        "partition": 1,
        "offset": 1,
        "tstype": "logappend",
        "ts": FIRST_MS + 500,
        "broker": -1,
        "key": "",
        "payload": "",
    }
    fields = ("topic", "partition", "offset", "tstype", "ts", "broker", "headers", "key", "payload")
    assert {tuple(row) for row in rows} == {fields, tuple(name for name in fields if name != "headers")}


def test_base64_keeps_every_byte(run: Run, bucket: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-p", "0", "--end", "3", "-J", "--binary", "base64", "-q")
    rows = [json.loads(line) for line in outcome.lines]

    def decoded(value: str | None) -> bytes | None:
        return None if value is None else base64.b64decode(value, validate=True)

    assert [decoded(row["key"]) for row in rows] == [b"k0", None, b"\xff\xfe"]
    assert [decoded(row["payload"]) for row in rows] == [b"v0", None, b"\x80 50%\n"]
    assert rows[1]["headers"][::2] == ["n", "h"]
    assert [decoded(value) for value in rows[1]["headers"][1::2]] == [None, b"\xff"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(("-c", "-1"), "-c -1: give a number of records", id="-c"),
        pytest.param(("-f", "%s", "-J"), "-f and -J exclude each other", id="-f and -J"),
        pytest.param(("-f", "%q"), "%q is no field", id="-f"),
        pytest.param(("-s", "i", "-J"), "-s and -J exclude each other", id="-s and -J"),
        pytest.param(("-s", "value="), "-s: the format of the value is empty", id="-s empty"),
        pytest.param(("-s", "key=avro"), "set schema.registry.url (-r)", id="-s avro"),
        pytest.param(("-s", "key=ix"), "-s: 'x' is no token of a format; there are b B h H", id="-s unknown"),
    ],
)
def test_options_that_are_wrong(run: Run, bucket: str, argv: tuple[str, ...], said: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", *argv)
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert outcome.stderr.count("\n") == 1
    assert said in outcome.stderr


def test_the_report_is_right(run: Run, bucket: str) -> None:
    """Every segment whole in one GET; the last of the partition a second time, to find where it ends."""
    sizes = {path.name: path.stat().st_size for path in Path(bucket).rglob("shop-0-*/*.log")}
    last = sizes[max(sizes)]
    outcome = run("cat", "--url", bucket, "-t", "shop", "-p", "0")
    report = outcome.stderr.splitlines()
    assert all(line.startswith("% ") for line in report)
    assert re.fullmatch(r"% 6 records in \d+\.\d\d s \(\d+\.\d MB/s of remote bytes\)", report[0])
    size_bytes = sum(sizes.values()) + last
    mean = size_bytes / 4
    assert size_bytes < 1024
    assert report[1].startswith(f"% remote bytes: {size_bytes} B in 4 GETs, mean {mean:.0f} B per GET; indexes: ")
    assert report[2] == "% fallbacks: none"
    unknown = "log start unknown: the bucket alone does not tell which records were deleted before its segments"
    notes = [line for line in report[3:] if "in plain Python" not in line]  # said where no compiler was
    assert notes == [
        "% end: shop-0 is read up to offset 9 (exclusive), where the tier ends (not-tiered)",
        f"% note: {unknown}",
    ]
    known = run("cat", "--url", bucket, "-t", "shop", "-p", "0", "--log-start", "0")
    assert "log start unknown" not in known.stderr


def test_a_few_records_cost_a_few_kilobytes(run: Run, tmp_path: Path) -> None:
    """Only as much of a segment is read as the records need, and more GETs follow only if that is not enough."""
    log = LogBuilder("large")
    for number in range(200):
        log.append_batch([Record(0, 0, b"k", b"%d" % number * 5_000, ())])
    log.roll()
    write_kafka_local(tmp_path, log.tiered())
    whole = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    assert whole > 2 << 20
    for count, least, most in ((3, 60 << 10, 96 << 10), (100, 700 << 10, 4 << 20)):
        outcome = run("cat", "--url", str(tmp_path), "-t", "large", "-p", "0", "-f", "%o ", "-c", str(count))
        assert outcome.stdout.split() == [b"%d" % offset for offset in range(count)]
        (line,) = (line for line in outcome.stderr.splitlines() if line.startswith("% remote bytes: "))
        size, unit = line.split()[3:5]
        size_bytes = float(size) * {"KiB": 1 << 10, "MiB": 1 << 20}[unit]
        assert least <= size_bytes <= most, line


@pytest.mark.parametrize(("count", "said"), [("2", 2), ("99", 6), ("0", 0)])
def test_the_report_counts_printed_records(run: Run, bucket: str, count: str, said: int) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-p", "0", "-f", "%o ", "-c", count)
    assert len(outcome.stdout.split()) == said
    assert outcome.stderr.startswith(f"% {said} records in ")


def test_an_error_in_the_middle_comes_after_the_records_before_it(run: Run, bucket: str, tmp_path: Path) -> None:
    for path in Path(bucket).rglob("*.*"):
        copy = tmp_path / path.relative_to(bucket)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (damaged,) = tmp_path.rglob("shop-0-*/00000000000000000006-*.log")
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1  # in the last of its three batches
    damaged.write_bytes(data)
    outcome = run("cat", "--url", str(tmp_path), "-t", "shop", "-p", "0", "-f", "%o ")
    assert (outcome.code, outcome.stdout) == (1, b"0 1 2 6 7 ")
    *report, line = outcome.stderr.splitlines()
    assert report[0].startswith("% 5 records")
    assert any(said.startswith("% fetched twice, because the bytes broke a rule: corrupt 1") for said in report)
    assert re.match(r"remote-fetch: checksum mismatch: .*shop-0, offset 8, object 00000000000000000006-", line)


def test_a_record_that_a_format_does_not_fit_comes_after_those_before_it(run: Run, bucket: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", "-p", "0", "-q", "-s", "value=cc$")
    assert (outcome.code, outcome.stdout) == (1, b"v0\n\n")
    assert outcome.stderr == "remote-fetch: -s: the value has 4 bytes more than its format [shop-0, offset 2]\n"


class Terminal(io.TextIOWrapper):
    """A standard output or error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_on_a_terminal_alone(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from remote_fetch.cli import main

    monkeypatch.setenv("TERM", "xterm")  # on a dumb one rich draws nothing

    def shown(*argv: str, stdout: type[io.TextIOWrapper] = io.TextIOWrapper) -> bytes:
        streams: Any = [stdout(io.BytesIO(), encoding="utf-8"), Terminal(io.BytesIO(), encoding="utf-8")]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        assert main(["cat", "--url", bucket, "-t", "shop", *argv]) == 0
        streams[1].flush()
        seen: bytes = streams[1].buffer.getvalue()
        return seen

    assert b"\x1b[" in shown()
    assert shown("-q") == b""
    assert b"\x1b[" not in shown(stdout=Terminal)


def test_following_ends_by_an_interrupt_as_every_read(run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, and a report of the records so far."""

    def interrupted(*arguments: object) -> Iterator[object]:
        raise KeyboardInterrupt
        yield

    class Following(Session):
        """A session whose broker gives nothing new; its plans are the bucket's."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.fallback.reader = SimpleNamespace(follow=interrupted)  # type: ignore[assignment]

    monkeypatch.setattr(cat, "Session", Following)
    outcome = run("cat", "--url", bucket, "-t", "shop", "-p", "0", "-f", r"%o\n")
    assert (outcome.code, len(outcome.lines)) == (130, 6)
    assert outcome.stderr.startswith("% 6 records in ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_before_the_first_record_has_a_report(
    run: Run, bucket: str, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(cat, "plans_from", lambda *given: signal.raise_signal(number))
    outcome = run("cat", "--url", bucket, "-t", "shop")
    assert (outcome.code, outcome.stdout) == (128 + number, b"")
    assert outcome.stderr.startswith("% 0 records in ")


def test_several_topics_come_one_after_another(run: Run, bucket: str, tmp_path: Path) -> None:
    shutil.copytree(bucket, tmp_path, dirs_exist_ok=True)
    log = LogBuilder("other", Uuid(bytes(range(1, 17))))
    log.append_batch([Record(0, value=b"w")])
    log.roll()
    write_kafka_local(tmp_path, log.tiered())
    both = ("--url", str(tmp_path), "-t", "other", "-t", "shop")
    assert run("cat", *both, "-o", "-1", "-f", "%t-%p:%o ", "-q").stdout == b"other-0:0 shop-0:8 shop-1:1 "
    assert run("grep", *both, "--value", "8", "-f", "%t:%o ", "-q").stdout == b"shop:8 "
    assert [line.split()[0] for line in run("ls", *both).lines[1:-1]] == ["other", *["shop"] * 4]
    assert [line.split(":")[0] for line in run("plan", *both).lines if line[0] != " "] == [
        "other-0", "shop-0", "shop-1", "total"
    ]  # fmt: skip
    for command in ("cat", "plan", "ls"):
        for again in ("shop", f"shop:{Uuid(bytes(range(16)))}"):
            twice = run(command, *both, "-t", again)
            assert (twice.code, twice.stdout) == (1, b"")
            assert f"-t {again}: the topic is given twice" in twice.stderr


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("-P",), "-P of kcat: remote-fetch sends no records of yours: use kcat -P"),
        (("-Q",), "use `remote-fetch plan -t TOPIC -o s@TIME`"),
        (("-d", "broker"), "-X debug=LIST"),
        (("-z", "gzip"), "belongs to kcat -P"),
        (("-O",), "put the offset into a format"),
        (("-L",), "cat -L asks the brokers: set bootstrap.servers (-b)"),
        (("-G", "readers"), "a consumer group needs brokers"),
        (("-G", "readers", "-b", "127.0.0.1:1", "-o", "7"), "a consumer group goes on at its committed offsets"),
        (("-G", "readers", "-b", "127.0.0.1:1", "-p", "0"), "-p and -G exclude each other"),
        (("stray",), "topics as words belong to -G"),
    ],
)
def test_kcats_other_options_are_refused_by_name(run: Run, bucket: str, argv: tuple[str, ...], said: str) -> None:
    outcome = run("cat", "--url", bucket, "-t", "shop", *argv)
    assert outcome.code in (1, 2)
    assert outcome.stdout == b""
    assert said in outcome.stderr.replace("\n", " ")
    assert run("cat", "-C", "--url", bucket, "-t", "shop", "-o", "-1", "-q").code == 0


def test_a_start_after_the_last_record_is_reported(run: Run, bucket: str) -> None:
    late = "% note: start=2099-01-01 00:00:00+00:00 is later than every record of 'shop': the read begins at the end"
    for command in ("cat", "plan"):
        outcome = run(command, "--url", bucket, "-t", "shop", "-o", "s@4070908800000")
        assert outcome.code == 0
        assert late in outcome.stderr.splitlines()

"""`offsets` with odd files: it writes what Kafka's tool reads, or names the row."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cases import each_of
from tests.cli.conftest import Run

HEAD = {
    "restore": 1, "topic": "orders", "topic_id": "WhQkc8NbQICA4VgfX3_jvg", "isolation": "read_committed",
    "target": "copy", "target_id": "WhQkc8NbQICA4VgfX3_jvg", "starts": {"0": 5},
}  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> str:
    path = tmp_path / "journal"
    path.write_text(json.dumps(HEAD) + "\n")
    return str(path)


TRANSLATED = {
    "\ufefforders,0,7\n".encode(): b"copy,0,5\n",
    "gr\u00fcn,orders,0,7\n".encode(): "gr\u00fcn,copy,0,5\n".encode(),
    b'"a,b",orders,0,7\r\n\r\norders,0,8\r\n': b'"a,b",copy,0,5\ncopy,0,5\n',
    b"a,orders,0,7\rorders,0,8\r": b"a,copy,0,5\ncopy,0,5\n",
}


@pytest.mark.parametrize("data", TRANSLATED, ids=ascii)
def test_rows_are_utf8_in_every_locale(
    run: Run, journal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    exported = tmp_path / "old.csv"
    exported.write_bytes(data)
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert run("offsets", journal, str(exported)).code == 0
    assert output.buffer.getvalue() == TRANSLATED[data]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))
    assert run("offsets", journal).code == 0
    assert output.buffer.getvalue() == 2 * TRANSLATED[data]


def test_a_journal_that_was_given_up_is_translated_with_a_warning(run: Run, tmp_path: Path) -> None:
    lines = [HEAD, {"partition": 0, "source": 10, "target": 5, "records": 4}, {"given_up": 0}]
    (tmp_path / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "old.csv").write_text("orders,0,12\norders,0,14\n")
    done = run("offsets", str(tmp_path / "journal"), str(tmp_path / "old.csv"))
    assert (done.code, done.stdout) == (0, b"copy,0,7\ncopy,0,9\n")
    assert "partition 0 of copy has records that are not of it, at offset 9 or later" in done.stderr
    assert "Its offsets of orders from 14 on become 9" in done.stderr


REFUSED = {
    b"orders,0,7\norders,0," + b"1" * 5000: "row 2: TOPIC,PARTITION,OFFSET or",
    b"orders,0,7\n" + b"x" * 200_000 + b",orders,0,7": "row 2: field larger than field limit",
    b"orders,\xd9\xa3,7": "row 1: TOPIC,PARTITION,OFFSET or",
    b"gr\xfcn,orders,0,7": "can't decode byte 0xfc",
}


@each_of("data", REFUSED, ids=lambda data: repr(data[:30]))
def test_a_row_that_cannot_be_read_is_named(run: Run, journal: str, tmp_path: Path, data: bytes) -> None:
    exported = tmp_path / "old.csv"
    exported.write_bytes(data)
    done = run("offsets", journal, str(exported))
    assert done.code == 1
    assert REFUSED[data] in done.stderr


def test_a_closed_standard_input(run: Run, journal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    done = run("offsets", journal)
    assert (done.code, done.lines) == (1, [])
    assert "standard input is closed" in done.stderr

"""A small bucket with one of everything, and a way to run the command line over it.

Rules of the file:

- The bucket's records are written here, so that a reader of a test can compare them.
- Commands run in this process unless a test is about processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from remote_fetch.cli import main
from remote_fetch.model import Uuid
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local

FIRST_MS = 1_700_000_000_000
PRODUCER = 7


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[str]:
        """Its output as text."""
        return self.stdout.decode("utf-8").splitlines()


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `remote-fetch` with some arguments."""

    def run_command(*argv: str) -> Outcome:
        capsysbinary.readouterr()
        try:
            code: object = main(argv)
        except SystemExit as stop:
            code = stop.code
        assert isinstance(code, int)
        captured = capsysbinary.readouterr()
        return Outcome(code, captured.out, captured.err.decode("utf-8"))

    return run_command


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tier with topic `shop`, whose record N was written N seconds after FIRST_MS.

    Partition 0: segments 0 to 2, 3 to 5 and 6 to 8. 0 is plain; 1 has null key and value and two headers; key, value
    and one header of 1 and 2 are no UTF-8; 3 and 4 were aborted by the marker at 5; 6 to 8 are plain.
    Partition 1: one segment; 0 and 1 with log append time.
    """
    folder = tmp_path_factory.mktemp("tier")
    topic_id = Uuid(bytes(range(16)))
    log = LogBuilder("shop", topic_id, 0)
    log.append_batch([Record(0, 0, b"k0", b"v0", (("h", b"1"),))])
    log.append_batch([Record(0, 0, None, None, (("n", None), ("h", b"\xff")))])
    log.append_batch([Record(0, 0, b"\xff\xfe", b"\x80 50%\n", ())])
    log.roll()
    log.begin(PRODUCER)
    log.append_batch(
        [Record(0, 0, b"a", b"aborted-3", ()), Record(1, 1000, b"a", b"aborted-4", ())], producer_id=PRODUCER
    )
    log.abort(PRODUCER)
    log.roll()
    for number in range(6, 9):
        log.append_batch([Record(0, 0, b"k%d" % number, b"v%d" % number, ())])
    log.roll()
    write_kafka_local(folder, log.tiered())
    other = LogBuilder("shop", topic_id, 1)
    other.append_batch([Record(0, 0, b"x", b"y", ()), Record(1, 0, b"", b"", ())], log_append_time_ms=FIRST_MS + 500)
    other.roll()
    write_kafka_local(folder, other.tiered())
    assert Path(folder).exists()
    return str(folder)

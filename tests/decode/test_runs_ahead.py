"""Runs that threads decode ahead of their reader: the same runs, whatever the threads do, and in whichever thread."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from types import ModuleType
from typing import Any

import pytest

from remote_fetch.decode.resources import DecodeThreads
from remote_fetch.decode.run_decoder import Bounds, DecodedRun, RunReader, RunsAhead, Start
from remote_fetch.testing.records import Record, encode_batch
from tests.eventually import eventually
from tests.own_threads import native_threads

EVERYTHING = 2**63 - 1
START = Start(-1, 0, 0, EVERYTHING)
LATE_S = 60
LATE_MS = 1000 * LATE_S
BATCHES = 40


class Threads(DecodeThreads):
    """The threads of any engine."""

    def __init__(self, engine: ModuleType, most: int) -> None:
        self._own = engine.DecodeThreads(most)

    def of(self, engine: ModuleType) -> Any:
        return self._own


def log(first: int = 0, value_bytes: int = 200, codec: int = 4) -> memoryview:
    """Forty batches of five records, compressed and not."""
    batches = [
        encode_batch(
            first + 5 * number,
            [Record(at, at, b"%d" % number, bytes([number]) * value_bytes) for at in range(5)],
            codec=codec * (number % 2),
        )
        for number in range(BATCHES)
    ]
    return memoryview(b"".join(batches))


def reader_of(engine: ModuleType, **bounds: Any) -> RunReader:
    every = Bounds(**{"segment_start": 0, "segment_end": EVERYTHING - 1, "stop_offset": EVERYTHING, **bounds})
    return RunReader("topic", 3, ("key", "value", "offset"), every, engine=engine)


def begin(reader: RunReader, threads: DecodeThreads, data: memoryview, most_bytes: int = 1 << 30) -> RunsAhead:
    return reader.begin(data, 0, START, len(data), threads, most_bytes)


def one_after_the_other(reader: RunReader, data: memoryview) -> list[DecodedRun]:
    runs = [reader.read(data, 0, START, len(data))]
    while runs[-1].position < len(data):
        runs.append(reader.read(data, runs[-1].position, START._replace(last_offset=runs[-1].last_offset), len(data)))
    return runs


def facts(runs: list[DecodedRun]) -> list[tuple[Any, ...]]:
    """All that runs say, with their rows as Arrow batches."""
    return [(run[:5], run.rows.to_arrow(), run.saturated) for run in runs]


@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize("target_bytes", [1, 3000, 1 << 20])
def test_they_are_the_runs_of_the_reader(engine: ModuleType, most: int, target_bytes: int) -> None:
    threads, reader = Threads(engine, most), reader_of(engine, target_bytes=target_bytes)
    expected = one_after_the_other(reader, log())
    found = [begin(reader, threads, log()) for _ in range(20)]
    assert threads.count <= most
    assert all(facts(ahead.wait(LATE_MS)) == facts(expected) for ahead in found)
    assert threads.close(LATE_MS) == threads.count == 0


@pytest.mark.parametrize("most_bytes", [0, 1, 5000])
def test_they_end_when_they_have_enough(engine: ModuleType, most_bytes: int) -> None:
    threads, reader = Threads(engine, 1), reader_of(engine, target_bytes=1500)
    expected = one_after_the_other(reader, log())
    runs = begin(reader, threads, log(), most_bytes).wait(LATE_MS)
    assert facts(runs) == facts(expected[: len(runs)])
    assert sum(run.rows.size_bytes for run in runs[:-1]) < max(most_bytes, 1)
    assert sum(run.rows.size_bytes for run in runs) >= most_bytes
    threads.close(LATE_MS)


def test_they_end_before_a_damaged_batch(engine: ModuleType) -> None:
    threads, reader = Threads(engine, 1), reader_of(engine)
    data = bytearray(log())
    data[len(data) // 2] ^= 1
    (run,) = begin(reader, threads, memoryview(bytes(data))).wait(LATE_MS)
    assert facts([run]) == facts([reader.read(memoryview(bytes(data)), 0, START, len(data))])
    assert 0 < run.taken < BATCHES
    threads.close(LATE_MS)


def test_they_are_taken_once(engine: ModuleType) -> None:
    threads = Threads(engine, 1)
    ahead = begin(reader_of(engine), threads, log())
    ahead.wait(LATE_MS)
    with pytest.raises(RuntimeError, match="taken already"):
        ahead.wait(LATE_MS)
    threads.close(LATE_MS)


def test_after_the_end_of_the_threads_their_reader_decodes(engine: ModuleType) -> None:
    threads, reader = Threads(engine, 2), reader_of(engine)
    queued = [begin(reader, threads, log()) for _ in range(30)]
    assert threads.close(LATE_MS) == threads.count == 0
    queued.append(begin(reader, threads, log()))
    assert threads.count == 0
    assert all(facts(ahead.wait(LATE_MS)) == facts(one_after_the_other(reader, log())) for ahead in queued)


def test_readers_share_the_threads(engine: ModuleType) -> None:
    threads, wrong = Threads(engine, 2), list[int]()
    expected = facts(one_after_the_other(reader_of(engine, target_bytes=2000), log()))

    def work() -> None:
        reader = reader_of(engine, target_bytes=2000)
        for _ in range(20):
            if facts(begin(reader, threads, log()).wait(LATE_MS)) != expected:
                wrong.append(1)

    waiting = [threading.Thread(target=work) for _ in range(4)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(LATE_S)
    assert wrong == []
    threads.close(LATE_MS)


def test_runs_that_nobody_takes(native_engine: ModuleType) -> None:
    """Their bytes are kept as long as a thread reads them, and no longer."""

    class Owner(bytearray):
        """Bytes that tell of their end."""

    threads, reader, gone = Threads(native_engine, 2), reader_of(native_engine), list[int]()
    for number in range(30):
        owner = Owner(log(value_bytes=50_000))
        weakref.finalize(owner, gone.append, number)
        begin(reader, threads, memoryview(owner).toreadonly())
        del owner
    gc.collect()
    assert sorted(gone) == list(range(30))
    threads.close(LATE_MS)


def test_bytes_that_may_change_are_refused(native_engine: ModuleType) -> None:
    threads = Threads(native_engine, 1)
    with pytest.raises(BufferError, match="read only"):
        begin(reader_of(native_engine), threads, memoryview(bytearray(log())))
    assert threads.count == 0


def test_threads_end_with_their_owner(native_engine: ModuleType) -> None:
    before, threads = native_threads(), Threads(native_engine, 2)
    begin(reader_of(native_engine), threads, log())
    assert threads.count == 1
    assert sys.platform != "linux" or eventually(lambda: len(native_threads() - before) == 1, LATE_S)
    del threads
    assert eventually(lambda: native_threads() <= before, LATE_S)


FORK = """
import os
from tests.decode.test_runs_ahead import *
from remote_fetch.decode import _native
threads, reader = Threads(_native, 2), reader_of(_native)
expected = one_after_the_other(reader, log())
begun = [begin(reader, threads, log(value_bytes=100_000)) for _ in range(20)]
child = os.fork()
if child == 0:
    assert facts(begin(reader, threads, log()).wait(LATE_MS)) == facts(expected)
    begun.clear()
    gc.collect()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert all(len(ahead.wait(LATE_MS)) == len(one_after_the_other(reader, log(value_bytes=100_000))) for ahead in begun)
assert threads.close(LATE_MS) == 0
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_process_decodes_itself(native_engine: ModuleType) -> None:
    """The threads stay in the process before the fork."""
    quietly = (sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK)  # from 3.12 on threads and forks warn
    done = subprocess.run(quietly, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")

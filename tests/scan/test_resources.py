"""Memory, threads, open files and GETs stay within the configured bounds, in every read and after every end.

Each run is a process of its own that measures itself (tests/scan/resource_runs.py). Memory may grow by

    fetch.remote.max.bytes + 2 x fetch.remote.range.bytes
    + 2 x the largest batch as stored + 3 x the same inflated + 24 MiB
    + for each unit of batches that is prepared ahead (4 to 6, by the number of processors): twice what it inflates to

- One range more than the budget is in the decoder, and one in the batch that waits for the next header.
- A batch is in memory as stored together with the next one.
- An inflated batch is in memory in parts and in one piece, or in one piece and in columns. The caller still has the
  columns before.
- The C library and Arrow's allocator are set to give freed blocks back at once. The reader cannot bound the memory that
  they would keep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import of_a_change
from tests.scan.resource_runs import MIB, QUEUED_BYTES, Used

ROOT = Path(__file__).resolve().parents[2]
MAX_THREADS = 16
"""Of one reader for its GETs, however small its ranges."""
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4
AHEAD_THREADS = min(PROCESSORS, 4) if PROCESSORS > 1 else 0
"""Those that check, decompress and decode large batches before their turn."""
PLAN_THREADS = 8
"""Those that make partitions ready."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures by Linux's /proc"),
]


def run(name: str) -> Used:
    """One run in a process of its own."""
    command = [sys.executable, "-m", "tests.scan.resource_runs", name]
    given = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(128 << 10), "ARROW_DEFAULT_MEMORY_POOL": "system"}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return Used(**told)


def check(used: Used) -> None:
    """The checks of every run."""
    under_way_bytes = used.max_bytes + 2 * used.range_bytes
    ahead_bytes = (AHEAD_THREADS + 2) * 2 * min(used.inflated_bytes, 8 * MIB)  # as stored in the batch, and in columns
    budget_bytes = under_way_bytes + ahead_bytes + 2 * used.stored_bytes + 3 * used.inflated_bytes + 24 * MIB
    assert 0 < used.grown_bytes <= budget_bytes
    assert 0 < used.most_in_flight <= used.max_bytes // used.range_bytes
    fetching = min(used.max_bytes // used.range_bytes, MAX_THREADS)
    # Of the threads that planned some may only just be ending.
    assert used.most_threads <= used.threads[0] + fetching + AHEAD_THREADS + PLAN_THREADS
    assert used.threads[1] == used.threads[0]
    assert used.closed


@pytest.mark.parametrize("name", of_a_change(["gibibyte", "gibibyte_in_little"], "gibibyte_in_little"))
def test_a_segment_of_a_gibibyte(name: str) -> None:
    used = run(name)
    assert used.returned_bytes > 1000 * MIB
    assert used.most_in_flight > 1
    check(used)


def test_the_middle_of_a_segment_beyond_four_gibibytes() -> None:
    used = run("sparse")
    assert used.rows == 128 * 64
    assert 128 * MIB < used.returned_bytes < 140 * MIB
    check(used)


def test_two_hundred_partitions_at_once() -> None:
    """A partition that is read leaves nothing behind; 200 builders' buffers would be gigabytes."""
    used = run("partitions")
    assert used.returned_bytes > 195 * MIB
    check(used)


def test_the_feeds_of_a_consumer_of_many_partitions() -> None:
    """The queues and the units ahead of all together are bounded, and each feed may have a few batches besides.

    A feed has a chunk in its queue, and the columns of the unit ahead (four batches while their ratio is unknown). The
    feeds share a few decompressors.
    """
    used = run("feeds")
    feeds = used.rows // 64
    assert feeds == 32
    assert used.grown_bytes <= used.max_bytes + 2 * used.range_bytes + QUEUED_BYTES + feeds * 5 * MIB + 24 * MIB
    assert used.closed


def test_the_feed_of_a_partition_whose_runs_are_small() -> None:
    """Many runs are joined before they wait in the queue."""
    used = run("feed_of_small_runs")
    assert used.rows > 20_000
    assert used.grown_bytes <= 24 * MIB
    assert used.closed


@pytest.mark.parametrize("name", of_a_change(["large_batch_compressed", "large_batch"]))
def test_batches_of_64_mib(name: str) -> None:
    used = run(name)
    assert used.rows >= 2 * 64
    assert used.inflated_bytes >= 64 * MIB
    check(used)


@pytest.mark.parametrize("name", of_a_change(["bomb_zstd", "bomb_gzip", "bomb_lz4"]))
def test_a_batch_that_inflates_too_far_is_refused_with_a_hint(name: str) -> None:
    used = run(name)
    assert (used.rows, used.error) == (0, "DecompressionLimit")
    assert "fetch.remote.max.decompressed.bytes" in used.hint
    assert used.stored_bytes < 2 * MIB
    check(used)


def test_a_slow_reader_holds_the_store_back() -> None:
    """While the caller draws no batch, no more is fetched than the budget allows, including the range in use."""
    used = run("slow_reader")
    assert used.rows == 64 * 512
    assert used.returned_bytes <= used.max_bytes + 2 * used.range_bytes
    check(used)


def test_a_reader_that_goes_away_leaves_no_thread_and_no_file() -> None:
    used = run("stopping")
    assert used.rows > 0
    before, during, after = used.threads
    assert before < during <= before + MAX_THREADS + AHEAD_THREADS
    assert after == before
    assert used.files[2] == used.files[0]


def test_a_reader_that_goes_away_while_the_store_hangs() -> None:
    used = run("stopping_while_the_store_hangs")
    before, during, after = used.threads
    assert before < during
    assert after == before
    assert used.closed

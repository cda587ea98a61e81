"""Runs a random workload for a while. At any state of the log, a read gives the broker's records."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.rig.rig import Rig
from tests.rig.workload import Workload

EACH_AT_LEAST_ONCE = (
    "abort",
    "add_partition",
    "cat",
    "commit",
    "delete_records",
    "delivered records",
    "fence",
    "injected faults",
    "produce",
    "read",
    "read_outside",
    "records from the broker",
    "records from the store",
    "restart",
    "settings",
    "transactional records",
    "wait_tiered",
    "writes during a read",
)
_SHOWN_STEPS = 120


@pytest.mark.soak
@pytest.mark.scheduled
@pytest.mark.slow
def test_a_random_workload(rig: Rig, new_topic: Callable[[str], str], pytestconfig: pytest.Config) -> None:
    """Make runs of about ninety steps until the time is over. The first run is always completed."""
    given, seconds = pytestconfig.getoption("workload_seed"), pytestconfig.getoption("workload_seconds")
    seed = random.SystemRandom().randrange(10**9) if given is None else given
    deadline_s = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    while True:
        workload = Workload(rig, new_topic(f"workload-{seed}"), seed)
        try:
            workload.run(deadline_s if counts else float("inf"))
        except BaseException as error:
            steps = "\n".join(workload.log[-_SHOWN_STEPS:])
            error.add_note(
                f"Kafka {rig.version}, seed {seed}; its steps:\n{steps}\nRun them again:\n"
                f"  pytest tests/rig/test_workload.py -k {fixture_of(rig)} --workload-seconds 1 --workload-seed {seed}"
            )
            raise
        counts += workload.counts
        print(f"\nKafka {rig.version}, seed {seed}:", dict(sorted(workload.counts.items())))
        if time.monotonic() > deadline_s:
            break
        seed += 1
    missing = [what for what in EACH_AT_LEAST_ONCE if not counts[what]]
    assert not missing, f"Kafka {rig.version}, seed {seed}: the workload never came to {missing}"


def fixture_of(rig: Rig) -> str:
    return "rig_" + "".join(rig.version.split(".")[:2])

"""`cat` prints what kcat printed of the same records, flag by flag; tests/rig/test_kcat.py asks the real one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remote_fetch.model import Uuid
from remote_fetch.testing.log_builder import LogBuilder
from remote_fetch.testing.records import Record
from remote_fetch.testing.stores import write_kafka_local
from tests.rig.kcat import FIRST_MS, FLAGS, RECORDS, TOPIC, as_documented, recorded

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records that kcat was given."""
    folder = tmp_path_factory.mktemp("tier")
    log = LogBuilder(TOPIC, Uuid(bytes(range(16))), 0)
    for number, (key, value, headers) in enumerate(RECORDS):
        log.append_batch([Record(0, 0, key, value, headers)], base_timestamp_ms=FIRST_MS + number * 1000)
    log.roll()
    write_kafka_local(folder, log.tiered())
    return folder


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_the_output_is_kcats(run: Run, tier: Path, flags: tuple[str, ...]) -> None:
    outcome = run("cat", "--url", str(tier), "-t", TOPIC, "-e", "-q", *flags)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == as_documented(flags, recorded(flags))

"""The request of a backfill: its fingerprint is saved with jobs, and it shows no secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.spark.backfill_request import BackfillRequest

REQUEST = BackfillRequest(
    "orders",
    "/lake/orders",
    {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.sasl.password": "hidden",
        "remote.storage.url": "s3://tier/prefix",
        "startingOffsets": "earliest",
    },
    columns=["offset", "value"],
    partition_by=["day"],
    to_options={"secret": "hidden"},
)


def test_a_fingerprint_stays_what_it_was() -> None:
    """Jobs that an earlier release began are resumed by it."""
    request = replace(REQUEST, columns=["offset", "timestamp"])
    assert request.check().fingerprint == "0668ab67b35b71a0"
    assert request.check().job_id == "0668ab67b35b71a0"


def test_options_that_say_how_do_not_name_a_job() -> None:
    request = replace(REQUEST, columns=["offset", "timestamp"])
    tuned = replace(
        request,
        options={**request.options, "fetch.remote.task.bytes": "10000", "kafka.sasl.password": "another"},
        compression="zstd",
        row_group_bytes=1,
    )
    assert tuned.check().fingerprint == request.check().fingerprint
    other = replace(request, options={**request.options, "endingOffsets": "latest"})
    assert other.check().fingerprint != request.check().fingerprint


def test_a_job_id_of_the_callers_own() -> None:
    checked = replace(REQUEST, columns=["timestamp"], partition_by=[], job_id="mine", to="lake").check()
    assert checked.job_id == "mine" != checked.fingerprint
    assert checked.url.startswith("/")
    assert replace(REQUEST, columns=["timestamp"], partition_by=[], to=Path("lake")).check().url == checked.url
    with pytest.raises(ConfigError, match="to=3: name a directory"):
        replace(REQUEST, to=3).check()


def test_no_secret_is_shown() -> None:
    checked = replace(REQUEST, columns=["offset", "timestamp"]).check()
    assert "hidden" not in f"{REQUEST!r} {checked!r}"

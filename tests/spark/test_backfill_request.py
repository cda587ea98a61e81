"""The request of a backfill: its fingerprint is saved with jobs, and it shows no secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.spark.backfill_request import BackfillRequest
from tests.cases import each_of

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


@each_of(
    ("wrong", "said"),
    [
        ({"row_group_bytes": "1"}, "row_group_bytes='1': give a number of bytes above 0"),
        ({"row_group_bytes": 0}, "row_group_bytes=0: give a number of bytes above 0"),
        ({"compression": 3}, "compression=3: a backfill writes Parquet with zstd"),
        ({"transform": "upper"}, "transform='upper': give a function"),
        ({"options": None}, "^options is a dict of names and values, not a NoneType$"),
        ({"to_options": ["hidden"]}, "^to_options is a dict of names and values, not a list$"),
    ],
)
def test_an_argument_of_another_type(wrong: dict[str, Any], said: str) -> None:
    request = replace(REQUEST, columns=["offset", "timestamp"])
    with pytest.raises(ConfigError, match=said):
        replace(request, **wrong).check()


def test_no_secret_is_shown() -> None:
    checked = replace(REQUEST, columns=["offset", "timestamp"]).check()
    assert "hidden" not in f"{REQUEST!r} {checked!r}"

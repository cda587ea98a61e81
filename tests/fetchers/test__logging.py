"""Debug messages of other libraries are held back, unless the application asked for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fetchers._logging import LIBRARIES
from fetchers.local import LocalFetcher

SECRET = "https://bucket/key?X-Amz-Signature=0123456789"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """The loggers as they are in a new process, and again as they were."""
    before = {name: logging.getLogger(name).level for name in LIBRARIES}
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.NOTSET)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def opened(root: Path) -> None:
    fetcher = LocalFetcher()
    fetcher.configure({
        "remote.storage.url": str(root),
        "fetch.remote.connect.timeout.ms": "1000",
        "fetch.remote.read.timeout.ms": "5000",
    })  # fmt: skip
    fetcher.close()


@pytest.mark.parametrize("name", ["urllib3.connectionpool", "botocore.auth", "aiobotocore.httpsession", "azure.core"])
def test_no_signed_url_in_the_log_of_an_application_at_debug(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger(name).debug(SECRET)
    assert SECRET in caplog.text, "this is what the library does"
    caplog.clear()
    opened(tmp_path)
    logging.getLogger(name).debug(SECRET)
    assert caplog.text == ""
    logging.getLogger(name).info("connected")
    assert "connected" in caplog.text


def test_a_level_that_the_application_has_set_stays(tmp_path: Path) -> None:
    logging.getLogger("botocore").setLevel(logging.DEBUG)
    opened(tmp_path)
    assert logging.getLogger("botocore").level == logging.DEBUG

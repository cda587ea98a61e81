"""The text of a library's error, as messages have it."""

from __future__ import annotations

import pytest

from remote_fetch.tables.table import said

SECRET = "hush-hush-hush"


def test_the_text_is_one_short_line() -> None:
    assert said(ValueError("no\n such\n\ntable"), {"type": "such"}) == "ValueError: no such table"
    assert len(said(ValueError("x" * 5000), {})) == 600


def test_a_backtrace_is_left_out() -> None:
    failed = OSError("Invalid data type: Float16\n   0: <unknown>\n   1: at /build/call.c:443:24\n")
    assert said(failed, {}) == "OSError: Invalid data type: Float16"


def test_what_a_terminal_would_obey_is_left_out() -> None:
    """delta-rs colours the arrows between causes. A catalog's text may have anything."""
    coloured = OSError("Generic S3 error \x1b[31m\u21b3\x1b[0m 403 \x1b[1;31m\u21b3\x1b[0m denied\x1b]0;title\x07")
    assert said(coloured, {}) == "OSError: Generic S3 error \u21b3 403 \u21b3 denied?]0;title?"


@pytest.mark.parametrize(
    "name",
    [
        *("token", "s3.secret-access-key", "gcs.oauth2.token", "adls.connection-string", "connection_string"),
        *("header.Authorization", "delta.azure_storage_sas", "delta.proxy_url", "ssl.passphrase"),
    ],
)
def test_an_option_that_may_be_secret(name: str) -> None:
    assert said(ValueError(f"the store refuses {SECRET} today"), {name: SECRET}) == (
        f"ValueError: the store refuses ({name}) today"
    )


@pytest.mark.parametrize("at", range(540, 600))
def test_a_secret_where_the_text_is_cut(at: int) -> None:
    assert "hush" not in said(ValueError("x" * at + " " * 20 + SECRET), {"token": SECRET})


def test_a_secret_of_several_lines() -> None:
    assert said(ValueError(f"got {SECRET}\n  {SECRET}."), {"key": f"{SECRET}\n  {SECRET}"}) == "ValueError: got (key)."


def test_a_secret_that_is_a_part_of_another() -> None:
    options = {"user.token": SECRET, "token": f"{SECRET}-abcd", "other.token": f"{SECRET}-abcd-more"}
    assert said(ValueError(f"{SECRET}-abcd-more, {SECRET}-abcd, {SECRET}"), options) == (
        "ValueError: (other.token), (token), (user.token)"
    )

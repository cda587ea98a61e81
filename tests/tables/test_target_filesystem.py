"""A failure of a target's store is an error of this package that names the target, and no secret."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import botocore.exceptions as boto
import fsspec
import pytest
import requests
from s3fs.errors import translate_boto_error

from remote_fetch.errors import ConfigError, RemoteFetchError, StorageDenied, StorageUnavailable
from remote_fetch.session.filesystems import open_filesystem
from remote_fetch.tables.target import Target
from remote_fetch.tables.target_filesystem import of_target
from tests.cases import each_of


class Failing:
    """A store whose calls fail, as do those of the files that it opens."""

    protocol = ("s3", "s3a")

    def __init__(self, error: Exception) -> None:
        self.error = error

    def unstrip_protocol(self, name: str) -> str:
        return f"s3://{name}"

    def cat_file(self, name: str) -> bytes:
        raise self.error

    def open(self, name: str, mode: str) -> Failing:
        return self

    def write(self, data: bytes) -> int:
        raise self.error

    def close(self) -> None:
        raise self.error


def of_code(code: str, status: int) -> Exception:
    """The error that s3fs raises for an answer of S3."""
    answer = {"Error": {"Code": code, "Message": "s3cret"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    theirs = boto.ClientError(answer, "GetObject")
    error: Exception = translate_boto_error(theirs)
    error.__cause__ = theirs
    return error


FAILURES: dict[str, tuple[Exception, type[RemoteFetchError], str]] = {
    "no credentials": (boto.NoCredentialsError(), StorageDenied, "no credentials for the store were found"),
    "no server": (boto.EndpointConnectionError(endpoint_url="s3cret"), StorageUnavailable, "could not be reached"),
    "refused": (of_code("AccessDenied", 403), StorageDenied, "refused access"),
    "no bucket": (of_code("NoSuchBucket", 404), StorageDenied, "no such bucket"),
    "in no table": (boto.ProfileNotFound(profile="s3cret"), StorageUnavailable, r"\(botocore.ProfileNotFound\)"),
}

WITH_URL = requests.ConnectionError("Max retries exceeded with url: /tokeninfo?access_token=s3cret")


@each_of("case", FAILURES)
def test_a_store_that_fails(case: str) -> None:
    theirs, kind, said = FAILURES[case]
    file = of_target(Failing(theirs)).open("bucket/x", "wb")
    for call in (lambda: of_target(Failing(theirs)).cat_file("bucket/x"), lambda: file.write(b""), file.close):
        with pytest.raises(kind, match=rf"{said}.*\[object s3://bucket/x\]. This is the target") as caught:
            call()
        assert "s3cret" not in str(caught.value)
        assert "remote.storage" not in str(caught.value)
    with pytest.raises(kind, match=said), file:
        pass
    with pytest.raises(kind, match=rf"{said}.*\[object s3://bucket/x\]") as caught:
        of_target(Failing(theirs)).cat_file("me:s3cret@bucket/x?sig=s3cret")
    assert "s3cret" not in str(caught.value)


def test_no_cause_shows_a_url() -> None:
    with pytest.raises(StorageUnavailable) as caught:
        of_target(Failing(WITH_URL)).cat_file("bucket/x")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    assert "ConnectionError" in repr(caught.value.__cause__)


@each_of("error", [FileNotFoundError("x"), of_code("NoSuchKey", 404), of_code("404", 404)])
def test_a_file_that_is_not_there(error: Exception) -> None:
    with pytest.raises(FileNotFoundError):
        of_target(Failing(error)).cat_file("bucket/x")


@each_of("error", [OSError(28, "No space left on device"), FileExistsError("x"), StorageDenied("ours")])
def test_what_says_enough_is_passed_on(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        of_target(Failing(error)).cat_file("bucket/x")
    assert caught.value is error


def test_a_mistake_in_a_file_is_passed_on() -> None:
    error = TypeError("a mistake")
    with pytest.raises(TypeError) as caught:
        of_target(Failing(error)).open("bucket/x", "wb").write(b"")
    assert caught.value is error


def test_options_that_the_sdk_of_a_store_does_not_take() -> None:
    with pytest.raises(ConfigError, match=r"the filesystem 's3' does not know 'foo'. Check to_options"):
        Target("s3://bucket/x", "job", {"foo": "s3cret"}).committed()
    with pytest.raises(ConfigError, match=r"the filesystem 's3' does not take them \(AttributeError\)"):
        Target("s3://bucket/x", "job", {"client_kwargs": ["s3cret"]}).committed()


def test_a_filesystem_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: Exception) -> None:
        def opens(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr("fsspec.core.url_to_fs", opens)

    fails(TypeError("s3cret"))
    with pytest.raises(ConfigError, match=r"to=x://...: no filesystem can be made of these options \(TypeError\)"):
        open_filesystem("x://bucket/x", {}, key="to")
    fails(boto.NoCredentialsError())
    with pytest.raises(StorageDenied, match=r"\[object x://...\]"):
        open_filesystem("x://bucket/x", {}, key="to")
    fails(WITH_URL)
    with pytest.raises(StorageUnavailable) as caught:
        open_filesystem("x://bucket/x", {}, key="to")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_one_of_this_machine_stays_as_it_is(tmp_path: Path) -> None:
    here = fsspec.filesystem("file")
    assert of_target(here) is here
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        here.cat_file(str(tmp_path / "file" / "x"))


def test_it_travels() -> None:
    one = of_target(fsspec.filesystem("memory"))
    assert of_target(one) is one
    again = pickle.loads(pickle.dumps(one))
    with again.open("/travels/x", "wb") as file:
        file.write(b"data")
        assert file.tell() == 4
    assert (one.cat_file("/travels/x"), again.protocol) == (b"data", "memory")

"""The error tree: its shape, its kinds, what it says, and that it travels between processes whole."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from remote_fetch import errors
from remote_fetch.errors import (
    Cancelled,
    ConfigError,
    CorruptSegment,
    ErrorKind,
    FallsBackError,
    FatalError,
    MissingExtra,
    OffsetOutOfRange,
    RemoteFetchError,
    RetriableError,
    StorageTimeout,
    UnknownTopic,
    Unlocatable,
)
from tests.cases import each_of

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, RemoteFetchError) and value.__module__ == errors.__name__
]
BRANCHES = [RetriableError, FallsBackError, FatalError]
LEAVES = [cls for cls in CLASSES if cls is not RemoteFetchError and cls not in BRANCHES]


def test_no_message_advises_to_see_other_records_than_were_asked_for() -> None:
    """Another isolation level or another bound shows other records: that is the reader's choice and no remedy."""
    root = Path(errors.__file__).parents[1]
    advice = re.compile(
        r"isolation=read|read_uncommitted does|earlier end|choose other bounds|begin with 'earliest'", re.IGNORECASE
    )
    shipped = [*(root / "remote_fetch").rglob("*.py"), *(root / "fetchers").rglob("*.py")]
    assert shipped
    found = [str(path) for path in shipped if advice.search(path.read_text(encoding="utf-8"))]
    assert found == []


def test_everything_is_exported() -> None:
    assert sorted(errors.__all__) == sorted(["ErrorKind", *(cls.__name__ for cls in CLASSES)])


def test_the_tree_is_the_one_that_the_module_draws() -> None:
    drawn = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip().lstrip("|`- ").split(" ")[0]
        if line.startswith("    ") and name.isidentifier():
            drawn.append(name)
    assert sorted(drawn) == sorted(cls.__name__ for cls in CLASSES)


@each_of("cls", LEAVES)
def test_every_error_is_of_one_branch_that_says_what_to_do(cls: type[RemoteFetchError]) -> None:
    (branch,) = [branch for branch in BRANCHES if issubclass(cls, branch)]
    assert cls.retriable is (branch is RetriableError)
    assert cls.falls_back is (branch is not FatalError)


def test_kinds_are_unique_and_complete() -> None:
    kinds = [cls.kind for cls in LEAVES]
    assert len(set(kinds)) == len(kinds)
    # A storage that is not configured is no error where there is a broker.
    assert set(ErrorKind) - set(kinds) == {ErrorKind.NOT_CONFIGURED}
    assert not any(hasattr(cls, "kind") for cls in [RemoteFetchError, *BRANCHES])


def test_kinds_are_what_they_have_always_been() -> None:
    assert [kind.value for kind in ErrorKind] == [
        "throttled", "unavailable", "not-found", "auth", "connect-timeout", "read-timeout", "corrupt", "format",
        "decompression-limit", "truncated", "unlocatable", "config", "missing-extra", "unknown-topic",
        "offset-out-of-range", "cancelled", "recreated", "not-configured", "broker-unavailable", "table",
        "undecodable", "unknown-schema", "registry-auth", "registry-unavailable", "log-truncated",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (ConfigError, ValueError),
        (OffsetOutOfRange, ValueError),
        (MissingExtra, ImportError),
        (UnknownTopic, LookupError),
    ],
)
def test_errors_of_the_caller_are_pythons_own_too(cls: type[RemoteFetchError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="wrong"):
        raise cls("wrong")


@each_of("cls", CLASSES)
@each_of("duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_travels_with_its_data(cls: type[RemoteFetchError], duplicate: Any) -> None:
    error = cls("broken", topic="t", partition=3, offset=7, object_name="a/b", position=9, hint="Look there")
    for name, value in {"first": 1, "last": 2, "key": "k", "extra": "s3"}.items():
        if hasattr(error, name):
            setattr(error, name, value)
    error.add_note("while reading")
    again = duplicate(error)
    assert type(again) is cls
    assert vars(again) == vars(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert getattr(again, "msg", None) == getattr(error, "msg", None)


def test_data_of_the_errors_that_have_their_own() -> None:
    hole = Unlocatable("no copy", first=5, last=9, topic="t")
    assert (hole.first, hole.last, hole.topic) == (5, 9, "t")
    assert (Unlocatable("no copy").first, Unlocatable("no copy").last) == (None, None)
    assert ConfigError("bad", key="a.key", hint="h").key == "a.key"
    assert MissingExtra("none", extra="s3").extra == "s3"


def test_a_missing_extra_says_how_to_install_it() -> None:
    text = 'S3 needs s3fs. Install it into this environment: pip install "remote-fetch[s3]"'
    assert str(MissingExtra("S3 needs s3fs", extra="s3")) == text
    assert MissingExtra("none", extra="s3", hint="Look there").hint == "Look there"
    assert MissingExtra("none").hint is None


def test_at_fills_in_what_is_unknown_and_never_overwrites() -> None:
    error = CorruptSegment("bad crc", position=10, partition=0)
    assert error.at(position=99, partition=5, topic="t", offset=0) is error
    assert (error.position, error.partition, error.topic, error.offset) == (10, 0, "t", 0)
    error.at(offset=77, topic="other")
    assert (error.offset, error.topic) == (0, "t")


def test_at_refuses_a_field_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="postion"):
        CorruptSegment("bad").at(postion=1)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "bad crc"),
        ({"topic": "t"}, "bad crc [t]"),
        ({"topic": "t", "partition": 0}, "bad crc [t-0]"),
        ({"partition": 4}, "bad crc"),  # a number alone says nothing
        ({"offset": 0}, "bad crc [offset 0]"),
        ({"object_name": "x.log", "position": 0}, "bad crc [object x.log, position 0]"),
        (
            {"topic": "t", "partition": 1, "offset": 2, "object_name": "x", "position": 3, "hint": "Ask"},
            "bad crc [t-1, offset 2, object x, position 3]. Ask",
        ),
        ({"hint": "Ask"}, "bad crc. Ask"),
    ],
)
def test_says_where(where: dict[str, Any], text: str) -> None:
    assert str(CorruptSegment("bad crc", **where)) == text


def test_a_topic_is_not_named_twice() -> None:
    assert str(CorruptSegment("no topic 't'", topic="t")) == "no topic 't'"
    assert str(CorruptSegment("no topic 't'", topic="t", partition=0)) == "no topic 't' [t-0]"


def test_the_representation_holds_the_message_alone() -> None:
    error = StorageTimeout("late", topic="t", hint="Wait")
    assert repr(error) == "StorageTimeout('late')"
    assert Cancelled("closed").args == ("closed",)

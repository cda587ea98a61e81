"""Exports through a REST catalog that refuses, that others are faster with, and whose answers are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.errors import ConfigError, TableRefused
from remote_fetch.tables.job_records import TaskRecord
from remote_fetch.tables.staging import Staging
from tests.tables.rest_catalog import IN_AND_409, RestCatalog, running
from tests.tables.tables import Topic, export, files_below, files_of, held, opened, same, target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path / "tier").grow(2)


@pytest.fixture
def where(tmp_path: Path, topic: Topic) -> dict[str, Any]:
    """A table with ten records of each partition, by its catalog in a file."""
    found = target("iceberg", tmp_path / "lake")
    export(topic, found, end=10)
    return found


@pytest.fixture
def catalog(tmp_path: Path, where: dict[str, Any]) -> Iterator[RestCatalog]:
    with running(tmp_path / "lake") as told:
        yield told


def through(catalog: RestCatalog, where: dict[str, Any], token: str | None = None) -> dict[str, Any]:
    return {**where, "to_options": catalog.options(token)}


def test_a_table_of_a_rest_catalog(catalog: RestCatalog, where: dict[str, Any], topic: Topic) -> None:
    done = export(topic, through(catalog, where))
    assert (done.rows, catalog.commits) == (20, 1)
    assert same(held(where), topic.rows())


def test_a_wrong_token(catalog: RestCatalog, where: dict[str, Any], topic: Topic) -> None:
    before = files_below(where)
    with pytest.raises((ConfigError, TableRefused), match=r"no Iceberg catalog|cannot be opened") as info:
        export(topic, through(catalog, where, token="not-the-token"))
    assert "not-the-token" not in str(info.value)
    assert files_below(where) == before


@pytest.mark.parametrize("status", [403, 401, 503])
def test_a_commit_that_is_refused(
    catalog: RestCatalog, where: dict[str, Any], topic: Topic, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in the table. The files wait, and the same call again only commits them."""
    catalog.answers += [status] * 3
    with pytest.raises(TableRefused, match="did not take the commit"):
        export(topic, through(catalog, where))
    assert catalog.commits == 0
    assert held(where).num_rows == 20
    catalog.answers.clear()
    done = export(topic, through(catalog, where))
    assert (done.tasks_run, done.rows) == (0, 20)
    assert same(held(where), topic.rows())
    assert files_below(where) == files_of(where)


def test_a_conflict(catalog: RestCatalog, where: dict[str, Any], topic: Topic) -> None:
    catalog.answers += [409, 409]
    assert export(topic, through(catalog, where)).rows == 20
    assert same(held(where), topic.rows())


def test_a_lost_answer(catalog: RestCatalog, where: dict[str, Any], topic: Topic) -> None:
    """The commit came in, and the catalog answered with 500: it is not repeated."""
    catalog.answers += [500]
    done = export(topic, through(catalog, where))
    assert (catalog.commits, done.starting_offsets) == (1, '{"topic": {"0": 20, "1": 20}}')
    assert same(held(where), topic.rows())
    assert opened(where).folder().jobs() == []
    assert files_below(where) == files_of(where)


def test_a_conflict_with_itself(catalog: RestCatalog, where: dict[str, Any], topic: Topic) -> None:
    """The files of a commit that came in are not those of a failed one: without them no reader opens the table."""
    catalog.answers += [IN_AND_409]
    done = export(topic, through(catalog, where))
    assert (done.rows, catalog.commits) == (20, 1)
    assert same(held(where), topic.rows())
    assert opened(where).folder().jobs() == []
    assert files_below(where) == files_of(where)


def test_credentials_that_end_with_the_tasks(
    catalog: RestCatalog, where: dict[str, Any], topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog gives credentials for an hour or less. The commit reads the files with new ones."""
    catalog.keys = tmp_path / "keys"
    catalog.keys.mkdir()
    finish = Staging.finish

    def finish_late(self: Staging, record: TaskRecord) -> None:
        finish(self, record)
        for key in (tmp_path / "keys").iterdir():
            key.unlink()

    monkeypatch.setattr(Staging, "finish", finish_late)
    assert export(topic, through(catalog, where)).rows == 20
    assert same(held(where), topic.rows())

"""A REST catalog on loopback over a catalog in a SQLite file. It can refuse, and lose its answers.

Rules of the file:

- Requests and answers are those of Iceberg's REST specification, as far as an export needs them.
- `answers` has a status for each of the next commits: 200 commits, 500 commits too but answers with an error, any other
  refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import load_catalog
from pyiceberg.io.fsspec import FsspecFileIO, FsspecInputFile
from pyiceberg.table import CommitTableRequest

from tests.answering import Quiet, serving

__all__ = ["IN_AND_409", "RestCatalog", "running"]

IN_AND_409 = -409
"""The commit comes in, its request is sent again by a proxy that lost the answer, and meets a conflict: itself."""


@dataclass
class RestCatalog:
    """The catalog: `token` is what it asks for, `commits` how many commits came in."""

    url: str
    token: str
    answers: list[int] = field(default_factory=list)
    commits: int = 0
    keys: Path | None = None
    """A directory of keys: each look at a table makes one. Without it the data files of that look cannot be read."""

    def options(self, token: str | None = None) -> dict[str, str]:
        """The properties with which pyiceberg reaches it."""
        how = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
        return {"type": "rest", "uri": self.url, "token": token or self.token, **how}

    def vended(self) -> dict[str, str]:
        """The properties that come with a table."""
        if self.keys is None:
            return {}
        key = self.keys / uuid4().hex
        key.touch()
        return {"py-io-impl": f"{__name__}.Locked", "key": str(key)}


class Locked(FsspecFileIO):
    """The data files of a table, for as long as the key is there."""

    def new_input(self, location: str) -> FsspecInputFile:
        """As pyiceberg's. Raises FileNotFoundError without the key."""
        Path(self.properties["key"]).stat()
        return super().new_input(location)


@contextmanager
def running(warehouse: Path, token: str = "open-sesame") -> Iterator[RestCatalog]:
    """The catalog of the tables in a warehouse of `tests.tables.tables`."""
    options = {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": f"file://{warehouse}"}
    below = load_catalog("lake", **options, **{"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
    told = RestCatalog("", token)

    class Handler(Quiet):
        def _answer(self, status: int, body: dict[str, Any]) -> None:
            if status >= 400:
                body = {"error": {"message": "not today", "type": "Refused", "code": status}}
            self.answer(status, json.dumps(body).encode(), Content_Type="application/json")

        def _table(self) -> Any:
            return below.load_table(self.path.split("?")[0].split("/namespaces/")[1].replace("/tables/", "."))

        def do_GET(self) -> None:
            if self.headers.get("Authorization") != f"Bearer {told.token}":
                self._answer(401, {})
            elif self.path.startswith("/v1/config"):
                self._answer(200, {"defaults": {}, "overrides": {}})
            else:
                table = self._table()
                metadata = json.loads(table.metadata.model_dump_json())
                body = {"metadata-location": table.metadata_location, "metadata": metadata}
                self._answer(200, body | {"config": told.vended()})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = told.answers.pop(0) if told.answers else 200
            if status not in (200, 500, IN_AND_409):
                self._answer(status, {})
                return
            request = CommitTableRequest.model_validate_json(body)
            done = below.commit_table(self._table(), request.requirements, request.updates)
            told.commits += 1
            metadata = json.loads(done.metadata.model_dump_json())
            self._answer(abs(status), {"metadata-location": done.metadata_location, "metadata": metadata})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    with closing(below), serving(server) as told.url:
        yield told

"""A schema registry on loopback that knows what a test registers, and fails as a test says.

Rules of the file: it has the paths of Confluent's API that a reader asks, and remembers what it was asked.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from itertools import chain
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.answering import Quiet, serving

__all__ = ["RegistryDouble", "registry_double"]


class RegistryDouble:
    """The schemas by id, and the versions of subjects. `failures` are the statuses of the next answers.

    The subjects in `deleted` are softly deleted: their schemas have ids, and the versions are told on demand.
    A subject such as `:.lab:a` is of the context `.lab`, which has ids of its own.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failures: list[int] = []
        self.deleted: set[str] = set()
        self.users: list[str | None] = []
        self.url = ""
        self._schemas: dict[str, list[dict[str, Any]]] = {}
        self._subjects: dict[str, list[int]] = {}

    def register(
        self,
        subject: str,
        schema: Any,
        kind: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
        rules: Any = None,
    ) -> int:
        """Register a version, and return its id, which begins at 1."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        schemas = self._schemas.setdefault(_context(subject), [])
        count = sum(map(len, self._schemas.values()))
        entry: dict[str, Any] = {"schema": text, "guid": str(uuid.UUID(int=count + 1))}
        if kind != "AVRO":
            entry["schemaType"] = kind
        if references:
            entry["references"] = [{"name": n, "subject": s, "version": v} for n, s, v in references]
        if rules is not None:
            entry["ruleSet"] = rules
        schemas.append(entry)
        self._subjects.setdefault(subject, []).append(len(schemas))
        return len(schemas)

    def guid(self, number: int) -> uuid.UUID:
        """The GUID of a schema of the default context."""
        return uuid.UUID(self._schemas[""][number - 1]["guid"])

    def answer(self, path: str) -> tuple[int, Any]:
        place, _, query = path.partition("?")
        parts = [unquote(part) for part in place.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            number, subject = int(parts[2]), parse_qs(query).get("subject", [""])[0]
            schemas = self._schemas.get(_context(subject), [])
            return self._schema(schemas[number - 1] if 0 < number <= len(schemas) else None, 40403)
        if parts[:2] == ["schemas", "guids"]:
            every = chain.from_iterable(self._schemas.values())
            return self._schema(next((each for each in every if each["guid"] == parts[2]), None), 40403)
        numbers = self._subjects.get(parts[1]) if parts[0] == "subjects" else None
        if parts[1] in self.deleted and parse_qs(query).get("deleted") not in (["true"], ["True"]):
            numbers = None
        if numbers is None:
            return 404, {"error_code": 40401, "message": "secret subject not found"}
        if len(parts) == 3:
            return 200, list(range(1, len(numbers) + 1))
        version = len(numbers) if parts[3] == "latest" else int(parts[3])
        if not 0 < version <= len(numbers):
            return 404, {"error_code": 40402, "message": "version not found"}
        number = numbers[version - 1]
        return 200, {
            "subject": parts[1],
            "version": version,
            "id": number,
            **self._schemas[_context(parts[1])][number - 1],
        }

    @staticmethod
    def _schema(found: dict[str, Any] | None, code: int) -> tuple[int, Any]:
        return (404, {"error_code": code, "message": "schema not found"}) if found is None else (200, found)


def _context(subject: str) -> str:
    return subject.split(":")[1] if subject.startswith(":.") else ""


@contextmanager
def registry_double() -> Iterator[RegistryDouble]:
    """A running registry. Its thread and its socket end with the block."""
    double = RegistryDouble()

    class Handler(Quiet):
        def do_GET(self) -> None:
            double.asked.append(self.path)
            double.users.append(self.headers.get("Authorization"))
            if double.failures:
                status, body = double.failures.pop(0), {"error_code": 50000, "message": "a secret"}
            else:
                status, body = double.answer(self.path)
            self.answer(status, json.dumps(body).encode(), Content_Type="application/vnd.schemaregistry.v1+json")

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as double.url:
        yield double

"""The one error of the service's requests: an HTTP status, a code for programs, and a sentence for people.

Rules of the file:

- A code is the name that Kafka gives the error, if it is the brokers' error. Codes are append-only.
- No message holds a secret, nor a value of the request that could be one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Refusal", "overloaded"]


@dataclass(eq=False)
class Refusal(Exception):
    """A request that gets no data. `retry_after_s` None: the same request will be refused again."""

    status: int
    code: str
    message: str
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def again(self) -> Refusal:
        """The same refusal for another request. A kept one is never raised: it would hold the frames of each raise."""
        return Refusal(self.status, self.code, self.message, self.retry_after_s, self.headers)

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"


def overloaded(what: str) -> Refusal:
    """The refusal of a request that the service has no room for now."""
    return Refusal(503, "OVERLOADED", f"{what}; ask again a little later", 1.0)

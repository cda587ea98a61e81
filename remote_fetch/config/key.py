"""One configuration key: its name, type, default, meaning and bounds.

Rules of the file:

- Values are strings or have the type of the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from remote_fetch.errors import ConfigError

__all__ = ["Key", "Type"]


class Type(Enum):
    """The type of a key's value."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key. `minimum`, `maximum` and `choices` bound its value. `default` None means unset.

    `choices` are words in lower case. A value may have them in any case, as Python's `True` has.
    """

    name: str
    type: Type
    default: str | int | bool | None
    doc: str
    minimum: int | None = None
    maximum: int = 2**63 - 1
    choices: tuple[str, ...] = ()

    def parse(self, value: object) -> str | int | bool:
        """The value as this key's type. Raises ConfigError with the key, the value and the allowed values."""
        text = str(value).strip()
        if "\0" in text:  # Python's functions for files raise ValueError
            raise ConfigError(f"{self.name}: a NUL is in the value", key=self.name)
        if self.type is Type.BOOLEAN:
            return self._boolean(text)
        if self.type is Type.INTEGER:
            return self._integer(text)
        if not self.choices:
            return text
        if text.lower() not in self.choices:
            raise ConfigError(f"{self.name}={text!r}: choose one of {', '.join(self.choices)}", key=self.name)
        return text.lower()

    def _boolean(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{self.name}={text!r}: give true or false", key=self.name)
        return text.lower() == "true"

    def _integer(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text!r}: give a whole number", key=self.name) from None
        if self.minimum is not None and number < self.minimum:
            raise ConfigError(f"{self.name}={number}: the smallest value is {self.minimum}", key=self.name)
        if number > self.maximum:
            raise ConfigError(f"{self.name}={number}: the largest value is {self.maximum}", key=self.name)
        return number

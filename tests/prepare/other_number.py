"""A whole number of another library, such as NumPy's, which is no `int`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["OtherNumber"]


@dataclass(frozen=True)
class OtherNumber:
    value: int

    def __index__(self) -> int:
        return self.value

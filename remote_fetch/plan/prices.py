"""Money for GETs and bytes, by a table of prices.

Rules of the file:

- Pure.
- An estimate gives two sums: where transfer is cheapest, in the region of the store, and where it goes to the internet.
- Discounts, free amounts and minimum charges are not in it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from remote_fetch.errors import ConfigError

__all__ = ["Prices", "parse_prices"]

_GB = 10**9
_NAMES = ("gets_1000", "gb_same_region", "gb_to_internet")


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of one store, in `currency`: of a thousand GETs, and of 10^9 bytes by where they go."""

    currency: str
    gets_1000: float
    gb_same_region: float
    gb_to_internet: float

    def text(self, gets: int, size_bytes: int) -> str:
        """The cost of so many GETs of so many bytes, as text."""
        of_gets = gets * self.gets_1000 / 1000
        near, far = (of_gets + size_bytes / _GB * price for price in (self.gb_same_region, self.gb_to_internet))
        return f"about {self._money(near)} in the store's region, {self._money(far)} to the internet"

    def _money(self, sum_: float) -> str:
        sign = "$" if self.currency == "USD" else f"{self.currency} "
        return f"{sign}{sum_:.2f}" if sum_ >= 1 else f"{sign}{sum_:.2g}"


def parse_prices(text: str, scheme: str, *, file: str) -> Prices | None:
    """The prices of a table of `text` (TOML) for URLs of that scheme. None if it has no such table.

    `file` is the name in errors. Raises ConfigError for text of another form.
    """
    key = "remote.storage.prices"
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{key}: {file} is no TOML: {error}", key=key) from None
    table = tables.get(scheme)
    if isinstance(table, dict) and "same" in table:
        table = tables.get(str(table["same"]))
    if table is None:
        return None
    found = [table.get(name) if isinstance(table, dict) else None for name in _NAMES]
    numbers = [float(price) for price in found if isinstance(price, (int, float)) and 0 <= price < _GB]
    if len(numbers) != len(_NAMES):
        raise ConfigError(
            f"{key}: the table [{scheme}] of {file} needs {', '.join(_NAMES)}, numbers from 0 on", key=key
        )
    return Prices(str(tables.get("currency", "USD")), *numbers)

"""Opens the table of prices: the one that ships with the package, or the user's own file."""

from __future__ import annotations

from importlib.resources import files

from remote_fetch.config.files import read_file
from remote_fetch.config.settings import Settings
from remote_fetch.errors import ConfigError
from remote_fetch.failures.file_errors import file_fault
from remote_fetch.fetch.plugins import scheme_of
from remote_fetch.plan.prices import Prices, parse_prices

__all__ = ["open_prices"]

_MAX_BYTES = 1 << 20


def open_prices(settings: Settings) -> Prices | None:
    """The prices of the configured store, None if the table has none for its URL. Raises ConfigError."""
    scheme = scheme_of(settings.storage_url or "")
    name = settings.storage_prices
    if name is None:
        shipped = files("remote_fetch.plan").joinpath("prices.toml")
        return parse_prices(shipped.read_text(encoding="utf-8"), scheme, file="the table of this package")
    key = "remote.storage.prices"
    data = read_file(name, key=key, max_bytes=_MAX_BYTES)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{key}={name}: {file_fault(error)}", key=key) from None
    return parse_prices(text, scheme or "file", file=name)

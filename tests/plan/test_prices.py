"""Prices by a table, and the cost that `plan` and `cat` tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote_fetch.config import Config
from remote_fetch.errors import ConfigError
from remote_fetch.plan.prices import Prices, parse_prices
from remote_fetch.session.price_table import open_prices

TABLE = """
currency = "EUR"
[s3]
gets_1000 = 0.5
gb_same_region = 0.01
gb_to_internet = 2
[file]
same = "s3"
"""


def parsed(text: str, scheme: str = "s3") -> Prices | None:
    return parse_prices(text, scheme, file="prices.toml")


def test_a_table() -> None:
    assert parsed(TABLE) == Prices("EUR", 0.5, 0.01, 2.0) == parsed(TABLE, "file")
    assert parsed(TABLE, "gs") is None


def test_a_cost_in_words() -> None:
    assert Prices("EUR", 0.5, 0.01, 2.0).text(3000, 10**9) == (
        "about EUR 1.51 in the store's region, EUR 3.50 to the internet"
    )
    assert Prices("USD", 0.0004, 0.0, 0.09).text(15, 10**8) == (
        "about $6e-06 in the store's region, $0.009 to the internet"
    )


@pytest.mark.parametrize(
    "text",
    [
        "[s3", "[s3]", "s3 = 7", "[s3]\ngets_1000 = 1\ngb_same_region = 0\ngb_to_internet = -1",
        "[s3]\ngets_1000 = 'x'\ngb_same_region = 0\ngb_to_internet = 1",
        "[s3]\ngets_1000 = nan\ngb_same_region = 0\ngb_to_internet = 1",
        "[s3]\ngets_1000 = inf\ngb_same_region = 0\ngb_to_internet = 1",
    ],
)  # fmt: skip
def test_a_table_of_another_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"remote\.storage\.prices.*prices\.toml"):
        parsed(text)


@pytest.mark.parametrize(
    "url", ["s3://b/p", "s3a://b/p", "gs://b/p", "gcs://b/p", "az://c/p", "abfs://c/p", "abfss://c/p"]
)
def test_the_table_of_the_package(url: str) -> None:
    prices = open_prices(Config.parse({"remote.storage.url": url}).settings)
    assert prices is not None
    assert (prices.currency, prices.gb_same_region) == ("USD", 0)
    assert 0 < prices.gets_1000 < 0.01 < prices.gb_to_internet < 1


def test_other_stores_have_no_prices() -> None:
    for url in ("/mnt/tier", "https://cdn.example/tier", "http://["):  # the fetcher refuses the last one
        assert open_prices(Config.parse({"remote.storage.url": url}).settings) is None


def test_a_table_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(TABLE, encoding="utf-8")
    keys = {"remote.storage.url": "/mnt/tier", "remote.storage.prices": str(file)}
    assert open_prices(Config.parse(keys).settings) == parsed(TABLE)
    with pytest.raises(ConfigError, match=r"remote\.storage\.prices"):
        open_prices(Config.parse({**keys, "remote.storage.prices": str(tmp_path / "none")}).settings)

"""Options of layouts: theirs alone, and the nearest one where there is no such."""

from __future__ import annotations

import pytest

from fetchers.layouts.options import layout_options
from remote_fetch.errors import ConfigError


def test_options_without_their_prefix() -> None:
    configs = {"remote.storage.layout": "x", "remote.storage.layout.a.b": "1", "remote.storage.options.c": "2"}
    options = layout_options(configs)
    assert options == {"a.b": "1"}
    options.refuse_unknown(["a.b", "z"], layout="x")
    with pytest.raises(ConfigError, match=r"layout 'x' has no option .*a\.b; the nearest one is .*a\.c"):
        options.refuse_unknown(["z", "a.c"], layout="x")
    with pytest.raises(ConfigError, match="nor any other"):
        options.refuse_unknown([], layout="x")

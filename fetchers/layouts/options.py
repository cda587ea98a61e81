"""The configuration of a layout: the keys below `remote.storage.layout.`, without that prefix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from remote_fetch.errors import ConfigError

__all__ = ["PREFIX", "LayoutOptions", "layout_options"]

PREFIX = "remote.storage.layout."


class LayoutOptions(dict[str, str]):
    """A layout's options by name. Values may name secrets and are not printed."""

    def refuse_unknown(self, known: Iterable[str], *, layout: str, also: Iterable[str] = ()) -> None:
        """Raise ConfigError for an option that the layout does not have; `also` are names to suggest."""
        names = set(known)
        for name in self:
            if name not in names:
                offered = sorted({*names, *also})
                near = difflib.get_close_matches(name, offered, n=1, cutoff=0.0)
                what = f"; the nearest one is {PREFIX}{near[0]}" if near else ", nor any other"
                raise ConfigError(f"the layout {layout!r} has no option {PREFIX}{name}{what}", key=PREFIX + name)


def layout_options(configs: Mapping[str, str]) -> LayoutOptions:
    """The options among a fetcher's configuration."""
    return LayoutOptions(
        (name.removeprefix(PREFIX), value) for name, value in configs.items() if name.startswith(PREFIX)
    )

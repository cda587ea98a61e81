"""A token of `oauth_cb` is used until shortly before its end."""

from __future__ import annotations

import time

import pytest

from remote_fetch.locate.tokens import TokenCache


def test_a_token_is_kept_until_shortly_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "time", lambda: now_s)
    asked: list[str] = []

    def callback(config: str) -> tuple[str, float]:
        asked.append(config)
        return f"token {len(asked)}", now_s + 100

    tokens = TokenCache.of({"oauth_cb": callback, "sasl.oauthbearer.config": "scope=x"})
    assert tokens is not None
    assert tokens.answer == ("token 1", 1100.0)
    now_s = 1070.0
    assert tokens.answer == ("token 1", 1100.0)
    now_s = 1070.5
    assert tokens.answer == ("token 2", 1170.5)
    assert asked == ["scope=x", "scope=x"]
    assert TokenCache.of({}) is None

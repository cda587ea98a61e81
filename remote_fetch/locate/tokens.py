"""The tokens of the application's `oauth_cb`, for clients that librdkafka does not get them for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["TokenCache"]


class TokenCache:
    """The answers of the user's `oauth_cb`, as confluent_kafka calls it. One is used until 30 s before it expires."""

    def __init__(self, callback: Callable[[str], tuple[Any, ...]], config: str) -> None:
        self._callback, self._config = callback, config
        self._answer: tuple[Any, ...] = ("", float("-inf"))

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> TokenCache | None:
        """The cache for the `oauth_cb` of a client's properties, None if there is none."""
        callback = properties.get("oauth_cb")
        return cls(callback, str(properties.get("sasl.oauthbearer.config", ""))) if callable(callback) else None

    @property
    def answer(self) -> tuple[Any, ...]:
        """The token, the time of its expiry in seconds since 1970, and perhaps a principal and extensions.

        Raises what the callback raises, and TypeError or ValueError for an answer that has no token or no expiry.
        """
        if time.time() > self._answer[1] - 30:
            token, expiry_s, *more = self._callback(self._config)
            self._answer = (token, float(expiry_s), *more)
        return self._answer

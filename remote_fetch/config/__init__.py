"""The configuration: each key once, its values checked and typed, and the keys of librdkafka."""

from remote_fetch.config.config import KEYS, PREFIX_KEYS, Config

__all__ = ["KEYS", "PREFIX_KEYS", "Config"]

"""The configuration: each key once, its values checked and typed, and the keys of librdkafka."""

from remote_fetch.config.config import Config
from remote_fetch.config.keys import KEYS, PREFIX_KEYS

__all__ = ["KEYS", "PREFIX_KEYS", "Config"]

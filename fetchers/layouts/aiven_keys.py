"""The keys of segments that Aiven's plug-in encrypted: RSA private keys from PEM files, and what they open.

Each segment has an AES-256 key of its own, which stands in its manifest under RSA-OAEP with SHA3-512. Every chunk, and
every index, is one AES-256-GCM message: nonce (12 bytes), ciphertext, tag (16 bytes).

Rules of the file:

- Key material is in no message and no representation.
- Two libraries share the work. `cryptography` is faster for AES. It refuses OAEP with SHA3-512, so PyCryptodome does
  that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from fetchers.layouts.aiven_manifest import CIPHER_OVERHEAD_BYTES, Encryption
from fetchers.layouts.options import PREFIX
from remote_fetch.config.files import read_file
from remote_fetch.errors import ConfigError, CorruptSegment, MissingExtra, StorageDenied, UnsupportedFormat
from remote_fetch.model import Buffer

__all__ = ["KEY_FILE_OPTION", "Cipher", "KeyRing", "key_files"]

KEY_FILE_OPTION = "encryption.key.pairs.{}.private.key.file"
"""The plug-in's own name for the private key of a pair."""

_MAX_KEY_FILE_BYTES = 64 << 10
_NONCE_BYTES = 12
_DATA_KEY_BYTES = 32


class _Aead(Protocol):
    def decrypt(self, nonce: Buffer, data: Buffer, associated_data: bytes | None) -> bytes: ...


class Cipher:
    """Opens the chunks and indexes of one segment."""

    def __init__(self, aead: _Aead, invalid: type[Exception], aad: bytes) -> None:
        self._aead = aead
        self._invalid = invalid
        self._aad = aad

    def decrypt(self, data: memoryview) -> bytes:
        """One chunk or index in the clear. Raises CorruptSegment if a bit of it is not as it was written."""
        if len(data) < CIPHER_OVERHEAD_BYTES:
            raise CorruptSegment(f"{len(data)} bytes cannot hold an encrypted chunk or index")
        try:
            return self._aead.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], self._aad)
        except self._invalid:
            raise CorruptSegment("an encrypted chunk or index does not pass its authentication") from None


class KeyRing:
    """The private keys of a configuration, by the id of their pair. Raises ConfigError, MissingExtra."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._keys = {key_pair_id: _load(key_pair_id, path) for key_pair_id, path in files.items()}
        self._right: set[str] = set()

    def open(self, encryption: Encryption) -> Cipher:
        """The cipher of a segment.

        Raises UnsupportedFormat without the key pair's key, StorageDenied if it is wrong, and CorruptSegment if it has
        opened the data key of another segment.
        """
        key_pair_id = encryption.key_pair_id
        unwrap = self._keys.get(key_pair_id)
        option = PREFIX + KEY_FILE_OPTION.format(key_pair_id)
        if unwrap is None:
            raise UnsupportedFormat(
                f"the segment is encrypted under the key pair {key_pair_id!r:.80}, whose private key is not configured",
                hint=f"Name its PEM file in {option}",
            )
        try:
            key = unwrap(encryption.wrapped_key)
        except ValueError:
            key = b""
        if len(key) != _DATA_KEY_BYTES and key_pair_id in self._right:
            raise CorruptSegment(
                f"the private key of the pair {key_pair_id!r:.80} opens other data keys, and not this one: the "
                "manifest is damaged, or the pair had another key once"
            )
        if len(key) != _DATA_KEY_BYTES:
            raise StorageDenied(
                f"the private key configured for the pair {key_pair_id!r:.80} does not open the segment's data key",
                hint=f"Is the file of {option} that of another pair? If not, the manifest is damaged",
            )
        self._right.add(key_pair_id)
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

        return Cipher(AESGCM(key), InvalidTag, encryption.aad)


def key_files(options: Mapping[str, str]) -> dict[str, str]:
    """The paths of the private keys among a layout's options, by the id of their pair."""
    before, after = KEY_FILE_OPTION.split("{}")
    return {
        name.removeprefix(before).removesuffix(after): path
        for name, path in options.items()
        if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)
    }


def _load(key_pair_id: str, path: str) -> Callable[[bytes], bytes]:
    """The function that opens a data key. No error shows the text of the file, or a library's message about it."""
    option = PREFIX + KEY_FILE_OPTION.format(key_pair_id)
    try:
        import cryptography  # noqa: F401, PLC0415 - an extra, which is missed here and not in the middle of a read
        from Crypto.Cipher import PKCS1_OAEP  # noqa: PLC0415 - as above
        from Crypto.Hash import SHA3_512  # noqa: PLC0415 - as above
        from Crypto.PublicKey import RSA  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingExtra(
            "reading encrypted segments needs the libraries cryptography and PyCryptodome", extra="encryption"
        ) from error
    text = read_file(path, key=option, max_bytes=_MAX_KEY_FILE_BYTES)
    try:
        key = RSA.import_key(text)
    except (ValueError, IndexError, TypeError):
        key = None
    if key is None or not key.has_private():
        raise ConfigError(f"{option}: {path} holds no RSA private key in PEM, unencrypted", key=option)
    return cast(Callable[[bytes], bytes], cast(Any, PKCS1_OAEP).new(key, hashAlgo=SHA3_512).decrypt)

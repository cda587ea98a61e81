"""Private keys: which files are taken, the errors about other files, and the secrets that no error shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from fetchers.layouts.aiven_keys import KeyRing, key_files
from fetchers.layouts.aiven_manifest import Encryption
from remote_fetch.errors import ConfigError, CorruptSegment, MissingExtra, StorageDenied
from tests.fetchers.layouts.aiven_writer import wrap_key

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8
PLAIN = serialization.NoEncryption()


def saved(folder: Path, data: bytes) -> str:
    path = folder / "key.pem"
    path.write_bytes(data)
    return str(path)


def test_files_by_the_id_of_their_pair() -> None:
    options = {
        "encryption.key.pairs.a.b.private.key.file": "1",
        "encryption.key.pairs.c.private.key.file": "2",
        "encryption.key.pairs..private.key.file": "3",
        "encryption.key.pairs.c.public.key.file": "4",
    }
    assert key_files(options) == {"a.b": "1", "c": "2"}


@pytest.mark.parametrize("form", [PKCS8, serialization.PrivateFormat.TraditionalOpenSSL])
def test_private_keys_in_pem(tmp_path: Path, form: serialization.PrivateFormat) -> None:
    ring = KeyRing({"k": saved(tmp_path, KEY.private_bytes(PEM, form, PLAIN))})
    cipher = ring.open(Encryption("k", wrap_key(KEY, b"\x05" * 32), b"aad"))
    with pytest.raises(CorruptSegment, match="27 bytes cannot hold"):
        cipher.decrypt(memoryview(bytes(27)))
    with pytest.raises(CorruptSegment, match="authentication"):
        cipher.decrypt(memoryview(bytes(28)))


def test_files_that_are_no_private_key(tmp_path: Path) -> None:
    public = KEY.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    locked = KEY.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"s3cret"))
    curve = ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, PKCS8, PLAIN)
    own = KEY.private_bytes(PEM, PKCS8, PLAIN)
    for data in (b"", b"s3cret", public, locked, curve, own[: len(own) // 2]):
        with pytest.raises(ConfigError, match="no RSA private key in PEM") as caught:
            KeyRing({"k1": saved(tmp_path, data)})
        assert caught.value.key == "remote.storage.layout.encryption.key.pairs.k1.private.key.file"
        assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match="larger than"):
        KeyRing({"k1": saved(tmp_path, own + b" " * (64 << 10))})
    with pytest.raises(ConfigError, match="No such file"):
        KeyRing({"k1": str(tmp_path / "nothing.pem")})
    with pytest.raises(ConfigError, match="null"):
        KeyRing({"k1": "a\0b"})


@pytest.mark.parametrize(
    "wrapped", [b"", b"short", bytes(256), wrap_key(KEY, b"\x05" * 31)], ids=["empty", "short", "zeros", "31 bytes"]
)
def test_data_keys_that_do_not_open(tmp_path: Path, wrapped: bytes) -> None:
    ring = KeyRing({"k1": saved(tmp_path, KEY.private_bytes(PEM, PKCS8, PLAIN))})
    with pytest.raises(StorageDenied, match="'k1' does not open"):
        ring.open(Encryption("k1", wrapped, b""))


@pytest.mark.parametrize("missing", ["cryptography", "Crypto.Cipher"])
def test_without_the_libraries(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    KeyRing({})
    with pytest.raises(MissingExtra, match=r'pip install "remote-fetch\[encryption\]"') as caught:
        KeyRing({"k1": "anything"})
    assert caught.value.extra == "encryption"


def test_a_data_key_that_is_damaged(tmp_path: Path) -> None:
    """The private key is right, because it opens those of other segments. So the store does not refuse."""
    ring = KeyRing({"k1": saved(tmp_path, KEY.private_bytes(PEM, PKCS8, PLAIN))})
    ring.open(Encryption("k1", wrap_key(KEY, b"\x05" * 32), b"aad"))
    with pytest.raises(CorruptSegment, match="'k1' opens other data keys"):
        ring.open(Encryption("k1", bytes(256), b"aad"))

"""Makes a certificate authority for a test, and a certificate for loopback that it signs.

Rules of the file:

- Every file is made for the test, in the test's folder. No key is in the repository.
- The certificates are valid for a day.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Certificates", "make_certificates"]


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files of `folder`: the authority's certificate, the server's certificate, its key, and both in one file.

    `revocations` is a list of the authority that revokes the server's certificate.
    """

    folder: Path
    authority: Path
    certificate: Path
    key: Path
    both: Path
    revocations: Path


_SIGNS = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


def make_certificates(folder: Path) -> Certificates:
    """A new authority, and a certificate for 127.0.0.1 and localhost that it signed."""
    folder.mkdir(parents=True)
    own_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = _name("the authority of a test")
    authority = (
        _begun(name, name, own_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS, critical=True)  # Python 3.13 wants it
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own_key.public_key()), critical=False)
        .sign(own_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        _begun(_name("localhost"), name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own_key.public_key()), critical=False)
        .sign(own_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    names_of_files = ("authority.pem", "certificate.pem", "key.pem", "both.pem", "revocations.pem")
    files = Certificates(folder, *(folder / file for file in names_of_files))
    files.authority.write_bytes(authority.public_bytes(pem))
    files.certificate.write_bytes(certificate.public_bytes(pem))
    files.key.write_bytes(key_text)
    files.both.write_bytes(key_text + certificate.public_bytes(pem))
    files.revocations.write_bytes(_revoked(certificate, name, own_key).public_bytes(pem))
    return files


def _revoked(
    certificate: x509.Certificate, authority: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateRevocationList:
    now = datetime.datetime.now(datetime.UTC)
    entry = x509.RevokedCertificateBuilder(serial_number=certificate.serial_number, revocation_date=now)
    return (
        x509.CertificateRevocationListBuilder(
            issuer_name=authority,
            last_update=now - datetime.timedelta(hours=1),
            next_update=now + datetime.timedelta(days=1),
        )
        .add_revoked_certificate(entry.build())
        .sign(key, hashes.SHA256())
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(hours=1),
        not_valid_after=now + datetime.timedelta(days=1),
    )

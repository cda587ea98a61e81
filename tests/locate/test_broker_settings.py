"""librdkafka's settings as kafka-python's: every setting mapped or named, and TLS contexts tried in a handshake.

The certificate below is its own authority, valid for localhost from 2020 to 2120, and revoked by the list below it.
"""

from __future__ import annotations

import re
import ssl
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remote_fetch.errors import ConfigError
from remote_fetch.locate.broker_settings import map_properties
from tests.rig.certificates import make_certificates

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBYTCCAQegAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEXJanb3Ee/MChg9
aUSIvS/E68xNPnK50CVeimwZyxYvvMi4Kkx3VqtycG3b5OFa0QvfbSsJtil+xg3E
lP/jquujSDBGMA8GA1UdEwEB/wQFMAMBAf8wFAYDVR0RBA0wC4IJbG9jYWxob3N0
MB0GA1UdDgQWBBQJXNFYaOpZT396jG5H6JbyTYJvIjAKBggqhkjOPQQDAgNIADBF
AiEA55BRJDcoQQYsvZP6yEC0rUXi9EW1buXiXqx5z3CW2rwCIHvXh5DPF4sCwYH5
nd/bJb0k4g/fQbu3PPrpaYZBJsfj
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgaDue59RrxuAICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEH3RA4bdo0gF8d3eiiXroJcEgZDP
1yo0+hz6BOPjERIVi0QNnURLi8SRmqR/MZA2nzswxmvPFqs2gTm65hDykjGwS3fp
U0QafLZoeqgXsmgbBeOC8X38QiJkzyel/dzAxcmbQeOn+NUW3b/nZfiXt8xGC0Kf
KZO0agn/IWHfSw8CHf23n4iTHP/YGdfm6+RVU6izpHyd1387mIqwdaqYoi891GE=
-----END ENCRYPTED PRIVATE KEY-----
"""
KEY_PASSWORD = "key-secret"

SERVERS = {"bootstrap.servers": "one:9092, two:9093,"}


class Tokens:
    """Stands for kafka-python's base class of token providers."""


def mapped(properties: dict[str, Any]) -> dict[str, Any]:
    return map_properties(SERVERS | properties, Tokens)


def lost(properties: dict[str, Any]) -> tuple[str, ...]:
    try:
        mapped(properties)
    except ConfigError as error:
        return tuple(error.message.partition("no counterpart of what is configured: ")[2].split(", "))
    return ()


def test_plaintext_is_the_default() -> None:
    assert mapped({}) == {
        "bootstrap_servers": ["one:9092", "two:9093"],
        "client_id": "remote-fetch",
        "security_protocol": "PLAINTEXT",
    }


def test_the_other_name_of_the_servers_and_the_client_id() -> None:
    settings = map_properties({"metadata.broker.list": "one", "client.id": "me"}, Tokens)
    assert (settings["bootstrap_servers"], settings["client_id"]) == (["one"], "me")


def test_of_two_names_of_a_setting_the_last_counts() -> None:
    """As in librdkafka: a user's `sasl.mechanisms` stands behind the `sasl.mechanism` that it is set over."""
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "SCRAM-SHA-256"}
    assert mapped(names)["sasl_mechanism"] == "SCRAM-SHA-256"
    turned = dict(reversed(names.items()))
    assert mapped(turned)["sasl_mechanism"] == "PLAIN"
    unset = {**names, "sasl.mechanisms": ""}
    assert mapped(unset)["sasl_mechanism"] == "PLAIN"


@pytest.mark.parametrize("properties", [{}, {"bootstrap.servers": ""}, {"bootstrap.servers": None}])
def test_without_servers(properties: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers") as raised:
        map_properties(properties, Tokens)
    assert raised.value.key == "bootstrap.servers"


def test_an_unknown_protocol_is_named() -> None:
    assert lost({"security.protocol": "quic"}) == ("security.protocol=QUIC",)


def test_settings_that_librdkafka_does_not_read_do_not_count() -> None:
    unread = {"ssl.keystore.location": "x", "sasl.kerberos.keytab": "x", "sasl.password": "x", "group.id": "g"}
    assert lost(unread) == ()
    assert lost({**unread, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}) == ()
    assert lost({"security.protocol": "SSL", "ssl.keystore.location": "", "ssl.engine.location": None}) == ()


# --------------------------------------------------------------------------------------------------------- SASL


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password(mechanism: str, name: str) -> None:
    given = {"security.protocol": "sasl_plaintext", name: mechanism, "sasl.username": "u", "sasl.password": "p-secret"}
    settings = mapped(given)
    assert settings["security_protocol"] == "SASL_PLAINTEXT"
    assert settings["sasl_mechanism"] == mechanism.upper()
    assert (settings["sasl_plain_username"], settings["sasl_plain_password"]) == ("u", "p-secret")
    assert "p-secret" not in repr(settings)
    assert "ssl_context" not in settings


def test_an_unknown_mechanism_is_named() -> None:
    assert lost({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS"}) == ("sasl.mechanism=AWS",)


def test_a_setting_never_heard_of_is_named() -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.new": "1", "sasl.also": "2"}
    assert lost(given) == ("sasl.also", "sasl.new")


@pytest.mark.parametrize("installed", [True, False])
def test_kerberos(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if installed else None)
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "broker"}
    package = "sasl.mechanism=GSSAPI (which needs the package gssapi)"
    assert lost(given) == (() if installed else (package,))
    if installed:
        settings = mapped(given)
        assert (settings["sasl_mechanism"], settings["sasl_kerberos_service_name"]) == ("GSSAPI", "broker")
    assert lost(given | {"sasl.kerberos.keytab": "file"}) == (
        ("sasl.kerberos.keytab",) if installed else ("sasl.kerberos.keytab", package)
    )


def tokens_of(callback: Callable[[str], Any], **more: Any) -> Any:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": callback, **more}
    settings = mapped(given)
    assert isinstance(settings["sasl_oauth_token_provider"], Tokens)
    return settings["sasl_oauth_token_provider"]


def test_the_callback_is_asked_for_each_token() -> None:
    """It is that of `Cluster.contact_properties`, which keeps a token until shortly before its end."""
    asked: list[str] = []

    def callback(config: str) -> tuple[str, float]:
        asked.append(config)
        return f"token {len(asked)}", 0.0

    tokens = tokens_of(callback, **{"sasl.oauthbearer.config": "scope=x", "sasl.oauthbearer.method": "default"})
    assert (tokens.token(), tokens.extensions(), tokens.token()) == ("token 1", {}, "token 3")
    assert asked == ["scope=x"] * 3


def test_the_text_of_a_callback_that_fails_is_not_logged() -> None:
    """It may hold a secret, such as a URL, and kafka-python logs each error of a connection."""

    def callback(config: str) -> tuple[str, float]:
        raise OSError("https://me:s3cret@tokens/")

    tokens = tokens_of(callback)
    for ask in (tokens.token, tokens.extensions):
        with pytest.raises(ValueError, match=r"^oauth_cb gave no token: it raised OSError$") as raised:
            ask()
        assert "s3cret" not in "".join(traceback.format_exception(raised.value))


def test_extensions_of_a_token() -> None:
    tokens = tokens_of(lambda config: ("token", time.time() + 100, "principal", {"logicalCluster": config}))
    assert tokens.token() == "token"
    assert tokens.extensions() == {"logicalCluster": ""}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, ("sasl.mechanism=OAUTHBEARER without oauth_cb",)),
        ({"sasl.oauthbearer.method": "oidc"}, ("sasl.oauthbearer.method",)),
        ({"enable.sasl.oauthbearer.unsecure.jwt": True}, ("enable.sasl.oauthbearer.unsecure.jwt",)),
    ],
)
def test_tokens_that_librdkafka_gets_by_itself(given: dict[str, Any], missing: tuple[str, ...]) -> None:
    assert lost({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **given}) == missing


# ---------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "certificate.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    return tmp_path


def context_of(**properties: Any) -> ssl.SSLContext:
    given = {name.replace("__", "."): str(value) for name, value in properties.items()}
    context = mapped({"security.protocol": "ssl", **given})["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    return context


def shake_hands(client: ssl.SSLContext, files: Path, *, host: str = "localhost", wants_client: bool = False) -> Any:
    """A handshake in memory with a server of our certificate; what the server sees of the client's certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files / "certificate.pem", files / "key.pem", KEY_PASSWORD)
    if wants_client:
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_verify_locations(files / "certificate.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1].getpeercert()


def test_the_authority_in_a_file(files: Path) -> None:
    context = context_of(ssl__ca__location=files / "certificate.pem")
    shake_hands(context, files)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(context, files, host="elsewhere")


def test_the_authority_in_a_folder(files: Path) -> None:
    assert context_of(ssl__ca__location=files).verify_mode == ssl.CERT_REQUIRED


def test_the_authority_as_text_stands_alone(files: Path) -> None:
    for comment in ("", "# Főtanúsítvány\n"):
        context = context_of(ssl__ca__pem=comment + CERTIFICATE)
        shake_hands(context, files)
        assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize("properties", [{}, {"ssl__ca__location": "probe"}])
def test_the_machines_own_authorities(files: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context: loaded.append(context))  # noqa: PLW0108 - a method
    context = context_of(**properties)
    assert loaded == [context]
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self.signed"):
        shake_hands(context, files)


@pytest.mark.parametrize("no", ["false", "False", "0", "no"])
def test_no_verification(files: Path, no: str) -> None:
    shake_hands(context_of(enable__ssl__certificate__verification=no), files, host="elsewhere")


def test_no_host_names(files: Path) -> None:
    context = context_of(ssl__endpoint__identification__algorithm="none", ssl__ca__location=files / "certificate.pem")
    shake_hands(context, files, host="elsewhere")
    assert context.verify_mode == ssl.CERT_REQUIRED


def test_revocations(tmp_path: Path) -> None:
    """The server's certificate is signed by an authority: OpenSSL 3.6 revokes no certificate that is itself trusted."""
    made = make_certificates(tmp_path / "made")
    trusted = context_of(ssl__ca__location=made.authority)
    shake_hands(trusted, made.folder)
    context = context_of(ssl__ca__location=made.authority, ssl__crl__location=made.revocations)
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shake_hands(context, made.folder)


def test_the_clients_own_certificate(files: Path) -> None:
    context = context_of(
        ssl__ca__location=files / "certificate.pem",
        ssl__certificate__location=files / "certificate.pem",
        ssl__key__location=files / "key.pem",
        ssl__key__password=KEY_PASSWORD,
    )
    assert shake_hands(context, files, wants_client=True)["subject"] == ((("commonName", "localhost"),),)


def test_a_missing_password_is_an_error_and_no_question(files: Path) -> None:
    named = f"ssl.certificate.location={files / 'certificate.pem'}, ssl.key.location={files / 'key.pem'}: "
    with pytest.raises(ValueError, match=re.escape(named)):
        context_of(ssl__certificate__location=files / "certificate.pem", ssl__key__location=files / "key.pem")


@pytest.mark.parametrize("key", ["ssl.ca.location", "ssl.crl.location", "ssl.certificate.location"])
def test_a_file_that_is_missing_is_named_with_its_setting(key: str) -> None:
    with pytest.raises(
        ConfigError, match=f"^the TLS settings cannot be used: {key}=/no/such/file: No such file or directory$"
    ):
        context_of(**{key.replace(".", "__"): "/no/such/file"})


def test_a_text_that_is_no_certificate_is_not_repeated() -> None:
    for text in ("gibberish", "gibbérish"):
        with pytest.raises(ConfigError, match=r"^the TLS settings cannot be used: ssl\.ca\.pem: ") as raised:
            context_of(ssl__ca__pem=text)
        assert "gibb" not in str(raised.value)


def test_ciphers() -> None:
    names = {one["name"] for one in context_of(ssl__cipher__suites="ECDHE-RSA-AES256-GCM-SHA384").get_ciphers()}
    assert "ECDHE-RSA-AES256-GCM-SHA384" in names
    assert "ECDHE-RSA-AES128-GCM-SHA256" not in names


def test_tls_that_python_has_not_is_named_and_nothing_is_loaded() -> None:
    given = {"ssl.keystore.location": "x", "ssl.ca.location": "absent", "ssl_engine_callback_data": "x"}
    for protocol in ("SSL", "SASL_SSL"):
        named = lost({"security.protocol": protocol, "sasl.mechanism": "PLAIN", **given})
        assert named == ("ssl.keystore.location", "ssl_engine_callback_data")


def test_sasl_over_tls(files: Path) -> None:
    settings = mapped(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
        | {"ssl.ca.location": str(files / "certificate.pem")}
    )
    assert settings["sasl_plain_username"] == "u"
    shake_hands(settings["ssl_context"], files)

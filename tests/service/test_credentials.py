"""The `Authorization` header: what is taken, what is refused, and that nothing of it is shown."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_fetch.service.credentials import Credentials, parse_authorization, parse_mechanisms
from remote_fetch.service.refusals import Refusal
from tests.cases import each_of
from tests.searches import examples

BOTH = ("SCRAM-SHA-256", "OAUTHBEARER")


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


def token_of(claims: object) -> str:
    encoded = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{encoded}.c2ln"


def test_a_user_and_password() -> None:
    found = parse_authorization([basic("ann:pa:ss wörd")], BOTH)
    assert found == Credentials("SCRAM-SHA-256", "ann", "pa:ss wörd")
    assert found.properties(0) == {
        "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ann", "sasl.password": "pa:ss wörd",
    }  # fmt: skip
    assert parse_authorization([b"basic   " + basic("ann:x")[6:]], BOTH).secret == "x"


def test_a_token_and_its_subject() -> None:
    token = token_of({"sub": "ann"})
    found = parse_authorization([f"Bearer {token}".encode()], BOTH)
    assert (found.mechanism, found.name, found.secret, found.is_token) == ("OAUTHBEARER", "ann", token, True)
    properties = found.properties(1000.0)
    assert properties["sasl.mechanism"] == "OAUTHBEARER"
    given_token, expires_s = properties["oauth_cb"]("")
    assert (given_token, expires_s > 1000.0) == (token, True)


@each_of("claims", [{}, {"sub": 1}, {"sub": "a\nb"}, {"sub": "a" * 300}, ["sub"], "sub"])
def test_a_token_whose_subject_is_none(claims: object) -> None:
    assert parse_authorization([f"Bearer {token_of(claims)}".encode()], BOTH).name == ""


def test_an_opaque_token_has_no_name() -> None:
    for token in (b"abc", b"a.b.c", b"e30.////.x"):
        assert parse_authorization([b"Bearer " + token], BOTH).name == ""


@each_of(
    "headers, says",
    [
        ([], "credentials are needed"),
        ([basic("a:b"), basic("a:b")], "several"),
        ([b"Basic !!!"], "not base64"),
        ([b"Basic " + base64.b64encode(b"\xff:\xff")], "not base64 of UTF-8"),
        ([basic("no colon")], "USER:PASSWORD"),
        ([basic(":password")], "USER:PASSWORD"),
        ([basic("user:")], "USER:PASSWORD"),
        ([basic("user\0admin:password")], "control characters"),
        ([basic("user:pass\0word")], "control characters"),
        ([basic("user:pass\x7fword")], "control characters"),
        ([basic("u" * 257 + ":p")], "at most 256"),
        ([basic("u:" + "p" * 1025)], "at most 256"),
        ([b"Bearer "], "no token"),
        ([b"Bearer a\x01auth=Bearer b"], "no token"),
        ([b"Bearer " + b"a" * 20_000], "no token"),
        ([b"Negotiate YII="], "Negotiate is refused"),
        ([b"Digest username=a"], "not taken here"),
        ([b""], "not taken here"),
    ],
)
def test_what_is_refused(headers: list[bytes], says: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_authorization(headers, BOTH)
    assert (caught.value.status, caught.value.code) == (401, "UNAUTHENTICATED")
    assert says in caught.value.message
    assert caught.value.headers["WWW-Authenticate"] == (
        'Basic realm="remote-fetch", charset="UTF-8", Bearer realm="remote-fetch"'
    )


def test_a_scheme_without_a_mechanism_is_refused() -> None:
    for headers, mechanisms, scheme in (
        ([b"Bearer abc"], ("PLAIN",), "Basic"),
        ([basic("a:b")], ("OAUTHBEARER",), "Bearer"),
    ):
        with pytest.raises(Refusal) as caught:
            parse_authorization(headers, mechanisms)
        assert caught.value.headers["WWW-Authenticate"].startswith(scheme)


@examples(300)
@given(st.binary(max_size=60), st.sampled_from((b"Basic ", b"Bearer ", b"")))
def test_any_header_is_taken_or_refused(value: bytes, scheme: bytes) -> None:
    try:
        found = parse_authorization([scheme + value], BOTH)
    except Refusal as refusal:
        status, message = refusal.status, str(refusal)
    else:
        status, message = 200, ""
        assert found.secret
        assert "\0" not in found.name + found.secret
    assert status in (200, 401)
    assert len(value) < 8 or value.decode("latin-1") not in message


def test_no_representation_has_the_secret() -> None:
    for header in (basic("ann:5ecret"), b"Bearer 5ecret"):
        assert "5ecret" not in repr(parse_authorization([header], BOTH))


@given(st.text(), st.text(), st.text(), st.text())
def test_the_key_tells_credentials_apart(name: str, secret: str, other_name: str, other_secret: str) -> None:
    first, second = Credentials("PLAIN", name, secret), Credentials("PLAIN", other_name, other_secret)
    assert (first.key_bytes() == second.key_bytes()) is (first == second)
    assert first.key_bytes("topic") != first.key_bytes()


def test_mechanisms() -> None:
    assert parse_mechanisms(" scram-sha-512 , OAUTHBEARER") == ("SCRAM-SHA-512", "OAUTHBEARER")
    for text in ("", "GSSAPI", "PLAIN,SCRAM-SHA-256"):
        with pytest.raises(ValueError, match=r"choose among|one mechanism"):
            parse_mechanisms(text)

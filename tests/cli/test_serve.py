"""`remote-fetch serve`: options that cannot be, said in one line before anything listens."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from tests.cases import each_of
from tests.cli.conftest import Run

BROKERS = ("-b", "127.0.0.1:1", "--client-property", "security.protocol=SASL_PLAINTEXT")
SIGNING = ("-X", "remote.storage.fetcher.class=tests.service.fakes:SigningBucket")


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    found = [logging.getLogger(name) for name in ("remote_fetch", "uvicorn")]
    before = [(one.level, one.propagate, list(one.handlers)) for one in found]
    yield
    for one, (level, propagate, handlers) in zip(found, before, strict=True):
        one.setLevel(level)
        one.propagate = propagate
        one.handlers[:] = handlers


@each_of(
    "words, says",
    [
        ((), "no remote storage is configured"),
        (SIGNING, "the service needs brokers"),
        ((*BROKERS, *SIGNING), "--mechanisms, such as SCRAM-SHA-512"),
        ((*BROKERS, *SIGNING, "--mechanisms", "GSSAPI"), "--mechanisms GSSAPI: choose among PLAIN"),
        (
            (*BROKERS, *SIGNING, "-X", "sasl.mechanism=PLAIN", "--client-property", "sasl.mechanisms=GSSAPI"),
            "--mechanisms GSSAPI: choose among PLAIN",
        ),
        ((*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--listen", "8090"), "--listen: give HOST:PORT"),
        ((*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--listen", "0.0.0.0:0"), "without TLS the passwords"),
        ((*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--tls-cert", "a"), "--tls-cert and --tls-key belong together"),
        ((*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--url-lifetime", "9"), "--url-lifetime 9: give 10 or more"),
        ((*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--proxies", "*"), "--proxies: '*' does not appear to be"),
        (("-b", "127.0.0.1:1", *SIGNING, "--mechanisms", "PLAIN"), "security.protocol=PLAINTEXT"),
        (
            (*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--client-property", "security.protocol=SSL"),
            "security.protocol=SSL: the brokers cannot be asked as another principal",
        ),
        ((*BROKERS, *SIGNING, "--client-property", "hunter2"), "--client-property, number 2: KEY=VALUE expected"),
        (
            (*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--client-property", "sasl.nothing=hunter2"),
            "librdkafka refuses the configuration",
        ),
        (
            (*BROKERS, *SIGNING, "--mechanisms", "PLAIN", "--client-property", "socket.timeout.ms=no"),
            "librdkafka refuses the configuration",
        ),
        ((*BROKERS, *SIGNING, "--client-property", "bootstrap.servers="), "bootstrap.servers names no address"),
        ((*BROKERS, *SIGNING, "--client-property", "group.id="), "group.id is empty"),
    ],
)
def test_refused(run: Run, words: tuple[str, ...], says: str) -> None:
    outcome = run("serve", *words)
    assert (outcome.code, outcome.stdout) == (1, b"")
    (line,) = [line for line in outcome.stderr.splitlines() if line.startswith("remote-fetch: ")]
    assert says in line
    assert "hunter2" not in line


def test_a_directory_cannot_be_vended(run: Run, bucket: str) -> None:
    outcome = run("serve", *BROKERS, "--url", bucket, "--mechanisms", "PLAIN")
    assert outcome.code == 1
    assert "cannot sign URLs" in outcome.stderr


def test_without_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "remote_fetch.service.server", raising=False)
    monkeypatch.delattr("remote_fetch.service.server", raising=False)
    outcome = run("serve", *BROKERS)
    assert outcome.code == 1
    assert 'pip install "remote-fetch[service]"' in outcome.stderr

"""The Java client's properties under librdkafka's names; each result is one that librdkafka itself takes."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException

from remote_fetch.errors import ConfigError
from remote_fetch.session.property_check import check_properties
from remote_fetch.spark.java_client import _JAVA_ONLY, librdkafka_properties

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="p\\"w=;d";'


def test_names_that_both_have() -> None:
    both = {"bootstrap.servers": "a:1", "fetch.min.bytes": "5", "max.partition.fetch.bytes": "99", "client.id": "x"}
    assert librdkafka_properties(both) == both
    check_properties(both)


@pytest.mark.parametrize("protocol", ["classic", "consumer", "CONSUMER"])
def test_the_group_protocol(protocol: str) -> None:
    """It changes nothing for a source that joins no group. Both clients take it in any case of letters."""
    assert librdkafka_properties({"group.protocol": protocol}) == {"group.protocol": protocol}
    check_properties({"group.protocol": protocol})


def test_names_that_differ() -> None:
    found = librdkafka_properties(
        {
            "receive.buffer.bytes": "65536",
            "send.buffer.bytes": "65537",
            "fetch.max.wait.ms": "100",
            "request.timeout.ms": "30000",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found == {
        "socket.receive.buffer.bytes": "65536",
        "socket.send.buffer.bytes": "65537",
        "fetch.wait.max.ms": "100",
        "socket.timeout.ms": "30000",
        "ssl.endpoint.identification.algorithm": "none",
    }
    check_properties(found)


def test_values_that_only_the_java_client_takes() -> None:
    found = librdkafka_properties(
        {
            "receive.buffer.bytes": "-1",
            "send.buffer.bytes": " -1 ",
            "connections.max.idle.ms": "-1",
            "fetch.min.bytes": "0",
            "fetch.max.wait.ms": "600000",
            "request.timeout.ms": "9" * 5000,
        }
    )
    assert found == {
        "socket.receive.buffer.bytes": "0",
        "socket.send.buffer.bytes": "0",
        "connections.max.idle.ms": "0",
        "fetch.min.bytes": "1",
        "fetch.wait.max.ms": "300000",
        "socket.timeout.ms": "300000",
    }
    check_properties(found)


def test_values_outside_of_librdkafka_s_range() -> None:
    """Spark's own source reads with each of them."""
    no_limit = str(2**31 - 1)
    greatest = {
        "auto.commit.interval.ms": "86400000",
        "connections.max.idle.ms": no_limit,
        "fetch.max.bytes": "2147483135",
        "fetch.min.bytes": "100000000",
        "heartbeat.interval.ms": "3600000",
        "max.partition.fetch.bytes": "1000000000",
        "max.poll.interval.ms": "86400000",
        "metadata.max.age.ms": "86400000",
        "reconnect.backoff.max.ms": "3600000",
        "reconnect.backoff.ms": "3600000",
        "session.timeout.ms": "3600000",
        "socket.receive.buffer.bytes": "100000000",
        "socket.send.buffer.bytes": "100000000",
        "retry.backoff.max.ms": "300000",
        "retry.backoff.ms": "300000",
    }
    given = {name.removeprefix("socket."): no_limit for name in greatest}
    assert librdkafka_properties(given) == greatest
    check_properties(greatest)
    least = {
        "fetch.max.bytes": "1000000",
        "max.partition.fetch.bytes": "1",
        "metadata.max.age.ms": "1",
        "retry.backoff.ms": "1",
        "socket.timeout.ms": "10",
        "socket.connection.setup.timeout.ms": "1000",
    }
    given = {"request.timeout.ms" if name == "socket.timeout.ms" else name: "0" for name in least}
    assert librdkafka_properties(given) == least
    check_properties(least)
    unchanged = {"fetch.max.bytes": "52428800", "max.partition.fetch.bytes": "1048576", "retry.backoff.ms": "soon"}
    assert librdkafka_properties(unchanged) == unchanged


@pytest.mark.parametrize(
    ("given", "raised"),
    [
        ({"max.poll.interval.ms": "1"}, {"max.poll.interval.ms": "45000"}),
        ({"session.timeout.ms": "600000"}, {"max.poll.interval.ms": "600000"}),
        ({"session.timeout.ms": "6000", "max.poll.interval.ms": "7000"}, {}),
        ({"reconnect.backoff.max.ms": "10"}, {"reconnect.backoff.max.ms": "100"}),
        ({"reconnect.backoff.ms": "20000"}, {"reconnect.backoff.max.ms": "20000"}),
        ({"reconnect.backoff.ms": "20000", "reconnect.backoff.max.ms": "10"}, {"reconnect.backoff.max.ms": "20000"}),
    ],
)
def test_times_that_librdkafka_compares(given: dict[str, str], raised: dict[str, str]) -> None:
    """The Java client takes each of them."""
    found = librdkafka_properties(given)
    assert found == {**given, **raised}
    check_properties(found)


def test_a_time_that_is_no_number_is_left_to_librdkafka() -> None:
    given = {"session.timeout.ms": "soon", "reconnect.backoff.max.ms": "soon"}
    assert librdkafka_properties(given) == given


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_a_user_and_a_password(module: str) -> None:
    jaas = f"kafkashaded.org.apache.kafka.common.security.{module} required\n username='me' password=\"pw\" ;"
    found = librdkafka_properties(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    )
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "pw",
    }
    check_properties(found)


def test_what_is_quoted_keeps_its_signs() -> None:
    assert librdkafka_properties({"sasl.jaas.config": SCRAM})["sasl.password"] == 'p"w=;d'


def test_kerberos() -> None:
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        'keyTab="/etc/me.keytab" principal="me@REALM" serviceName="kafka";'
    )
    assert librdkafka_properties({"sasl.jaas.config": jaas}) == {
        "sasl.kerberos.keytab": "/etc/me.keytab",
        "sasl.kerberos.principal": "me@REALM",
        "sasl.kerberos.service.name": "kafka",
    }


@pytest.mark.parametrize(
    ("jaas", "names"),
    [
        ("a.ScramLoginModule required username='u' password='p' tokenauth=true;", "tokenauth"),
        ("com.Krb5LoginModule required ticketCache='secret' keytab='secret';", "ticketCache, keytab"),
        ("a.OAuthBearerLoginModule required clientId='c' ssl.truststore.location='secret';", "ssl.truststore.location"),
        ("a.PlainLoginModule required user='secret' password='secret';", "user"),
    ],
)
def test_options_that_librdkafka_lacks(jaas: str, names: str) -> None:
    with pytest.raises(ConfigError, match=rf"that librdkafka does not have: {names}\. Leave them out") as caught:
        librdkafka_properties({"sasl.jaas.config": jaas})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("more", ["tokenauth=false", "serviceName='kafka'", "user_me='pw' debug=true"])
def test_options_that_change_nothing(more: str) -> None:
    jaas = f"a.PlainLoginModule required username='me' password='pw' {more};"
    assert librdkafka_properties({"sasl.jaas.config": jaas}) == {"sasl.username": "me", "sasl.password": "pw"}


@pytest.mark.parametrize("more", ["; a.PlainLoginModule required username='b'", "username", "= x"])
def test_what_the_java_client_does_not_take_either(more: str) -> None:
    with pytest.raises(ConfigError, match="'sasl\\.jaas\\.config' is wrong: expected"):
        librdkafka_properties({"sasl.jaas.config": f"a.PlainLoginModule required username='me' {more};"})


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        (r"""username='c\d' password="c\\d\ne";""", "cd", "c\\d\ne"),
        (r"""username='it\'s' password="\1011\777b";""", "it's", "A1?7b"),
        ("username='it' // the user's\n password=\"a // b\"; // =", "it", "a // b"),
        ("/* a\n=b; */ username='it'/**/password='/* x */';", "it", "/* x */"),
        ("username=it-1 password=p.w_$;", "it-1", "p.w_$"),
    ],
)
def test_quotes_and_comments_as_the_java_client_reads_them(options: str, user: str, password: str) -> None:
    """The texts are those that `JaasConfig` of kafka-clients 4.3.1 gives."""
    found = librdkafka_properties({"sasl.jaas.config": f"// me\na.PlainLoginModule required {options}"})
    assert found == {"sasl.username": user, "sasl.password": password}


def test_oauth() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    jaas = f'{module} required clientId="c" clientSecret="s" scope="x";'
    assert librdkafka_properties({"sasl.jaas.config": jaas, "sasl.oauthbearer.token.endpoint.url": "https://t"}) == {
        "sasl.oauthbearer.client.id": "c",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "x",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://t",
    }
    assert librdkafka_properties({"sasl.jaas.config": f"{module} required;"}) == {}
    extended = f"{module} required clientId='c' extension_logicalCluster='lkc-1' extension_identityPoolId=\"p\";"
    assert librdkafka_properties({"sasl.jaas.config": extended}) == {
        "sasl.oauthbearer.client.id": "c",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=p",
    }


def test_the_signs_of_librdkafkas_list_in_an_extension() -> None:
    """librdkafka 2.16 sent no extension at all with `x=a,b`, and `ab` for `a\\b`."""
    jaas = r"a.OAuthBearerLoginModule required extension_x='a,b' extension_y='c\\d';"
    assert librdkafka_properties({"sasl.jaas.config": jaas})["sasl.oauthbearer.extensions"] == r"x=a\,b,y=c\\d"


def test_certificates() -> None:
    pem = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "pem",
        "ssl.keystore.location": "/me.pem",
        "ssl.key.password": "pw",
    }
    assert librdkafka_properties(pem) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "pw",
    }
    inline = {"ssl.truststore.certificates": "A", "ssl.keystore.certificate.chain": "B", "ssl.keystore.key": "C"}
    assert librdkafka_properties(inline) == {"ssl.ca.pem": "A", "ssl.certificate.pem": "B", "ssl.key.pem": "C"}
    pkcs12 = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/me.p12",
        "ssl.keystore.password": "pw",
        "ssl.truststore.type": "PEM",
    }
    assert librdkafka_properties(pkcs12) == {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "pw"}
    unlocked = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/me.p12"}
    assert librdkafka_properties(unlocked) == {"ssl.keystore.location": "/me.p12"}


@pytest.mark.parametrize(
    ("java", "message"),
    [
        ({"max.poll.records": "1"}, "Kafka option 'max.poll.records' belongs to the Java client"),
        ({"sasl.jaas.config": "secret"}, "Kafka option 'sasl.jaas.config' is wrong: expected"),
        (
            {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required secret=1;"},
            "Kafka option 'sasl.jaas.config' names the login module IAMLoginModule, which only the Java client has",
        ),
        (
            {"sasl.jaas.config": "a.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub='secret';"},
            "Kafka option 'sasl.jaas.config' makes unsecured tokens (unsecuredLoginStringClaim_sub), which only",
        ),
        (
            {"ssl.truststore.location": "/secret.jks"},
            "Kafka option 'ssl.truststore.location' names a store of type JKS",
        ),
        (
            {"ssl.keystore.location": "/secret", "ssl.keystore.type": "JKS"},
            "Kafka option 'ssl.keystore.location' names a store of type JKS, which librdkafka does not read",
        ),
    ],
)
def test_what_has_no_counterpart(java: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        librdkafka_properties(java)
    assert str(caught.value).startswith(message)
    assert "secret" not in str(caught.value)
    assert caught.value.hint is not None or "sasl" in message


def test_each_name_of_the_java_client_alone_is_unknown_to_librdkafka() -> None:
    """The names are those of Java's ConsumerConfig. A name that librdkafka gains has to leave the list."""
    assert {"config.providers", "sasl.login.retry.backoff.ms", "socket.connection.setup.timeout.max.ms"} <= _JAVA_ONLY
    # librdkafka has one of these with other values, and passes over the other one.
    for name in _JAVA_ONLY - {"partition.assignment.strategy", "max.poll.records"}:
        with pytest.raises(KafkaException, match="No such configuration property"):
            Consumer({"group.id": "g", name: "1"})

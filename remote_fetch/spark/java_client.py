"""The options of Spark's Kafka source that begin with `kafka.`: the Java client's names, as librdkafka spells them.

Rules of the file:

- Pure.
- A name that both clients have is passed on unchanged.
- A name that only the Java client has is an error that names it. It is never dropped silently.
- A value that only the Java client takes, and that means the same as another one, becomes that one. A limit or a time
  outside of librdkafka's range becomes the nearest one inside.
- No value is part of a message, because many are secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from remote_fetch.errors import ConfigError

__all__ = ["librdkafka_properties"]

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_VALUES = {
    ("receive.buffer.bytes", "-1"): "0",
    ("send.buffer.bytes", "-1"): "0",
    ("connections.max.idle.ms", "-1"): "0",
}
"""Values of the Java client for "as the system has it", and for "never"."""
_RANGES = {
    "auto.commit.interval.ms": (0, 86_400_000),
    "connections.max.idle.ms": (0, 2_147_483_647),
    "fetch.max.bytes": (1_000_000, 2_147_483_135),
    "fetch.max.wait.ms": (0, 300_000),
    "fetch.min.bytes": (1, 100_000_000),
    "heartbeat.interval.ms": (1, 3_600_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "max.poll.interval.ms": (1, 86_400_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "receive.buffer.bytes": (0, 100_000_000),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "request.timeout.ms": (10, 300_000),
    "retry.backoff.max.ms": (1, 300_000),
    "retry.backoff.ms": (1, 300_000),
    "send.buffer.bytes": (0, 100_000_000),
    "session.timeout.ms": (1, 3_600_000),
    "socket.connection.setup.timeout.ms": (1000, 2_147_483_647),
}
"""The least and the greatest value that librdkafka (2.16) takes. The Java client takes others too, such as
`Integer.MAX_VALUE` for "no limit". The least of `fetch.max.bytes` is the default of `message.max.bytes`. None of these
values changes which records are read, so the nearest one serves."""
_LONG_DIGITS = 20
"""A number with so many digits is above all limits."""
_ORDERED = (
    ("session.timeout.ms", 45_000, "max.poll.interval.ms", 300_000),
    ("reconnect.backoff.ms", 100, "reconnect.backoff.max.ms", 10_000),
)
"""Two times with their defaults. librdkafka refuses the second one below the first one. The Java client takes both."""
_JAVA_ONLY = frozenset(
    {
        "auto.include.jmx.reporter",
        "config.providers",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "sasl.client.callback.handler.class",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "security.providers",
        "share.acquire.mode",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""The names of the Java client (up to 4.3) that librdkafka (2.16) lacks."""
_STORES = frozenset(
    {
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_JAAS = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*", re.DOTALL | re.IGNORECASE)
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_JAAS_COMMENT = re.compile(rf"""({_QUOTED})|(?<![^\s;"'])(?://[^\n]*|/\*.*?\*/)""", re.DOTALL)
_JAAS_OPTION = re.compile(rf"""([\w.$-]+)\s*=\s*(?:({_QUOTED})|([^\s;"'][^\s;]*))""", re.DOTALL)
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
"""Comments, quotes and escapes are read as Java's StreamTokenizer reads them: both kinds of quotes take C's escapes."""
_JAAS_KEY = "kafka.sasl.jaas.config"
_EXTENSION = "extension_"
"""Prefix of the options of an OAuthBearerLoginModule that are sent to the broker beside the token (KIP-342)."""
_SPECIAL, _ESCAPED = re.compile(r"[\\,]"), r"\\\g<0>"
"""A comma ends an extension in librdkafka's list, unless there is a backslash before it."""
_USER = {"username": "sasl.username", "password": "sasl.password"}
_LOGIN_MODULES: Mapping[str, Mapping[str, str]] = {
    "PlainLoginModule": _USER,
    "ScramLoginModule": _USER,
    "Krb5LoginModule": {
        "keyTab": "sasl.kerberos.keytab",
        "principal": "sasl.kerberos.principal",
        "serviceName": "sasl.kerberos.service.name",
    },
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}
"""The options of each login module that librdkafka has, with librdkafka's names."""
_NEEDLESS = frozenset(
    {
        "client",
        "debug",
        "doNotPrompt",
        "isInitiator",
        "refreshKrb5Config",
        "renewTGT",
        "serviceName",
        "storeKey",
        "useKeyTab",
        "useTicketCache",
    }
)
"""Options that change nothing for librdkafka: with kinit it has Kerberos tickets, and logs by a setting of its own."""
_BROKERS_USER = "user_"
"""Prefix of the options of a broker's PlainLoginModule. The login of a client ignores them."""


def librdkafka_properties(java: Mapping[str, str]) -> dict[str, str]:
    """The Java client's properties (names without `kafka.`) as librdkafka's.

    Raises ConfigError for a name, a kind of key store or a login module that librdkafka does not have.
    """
    properties: dict[str, str] = {}
    for name, value in java.items():
        if name in _JAVA_ONLY:
            raise ConfigError(
                f"Kafka option '{name}' belongs to the Java client: librdkafka, which kafka_remote reads with, has "
                "nothing like it",
                key=f"kafka.{name}",
                hint="Leave it out",
            )
        if name == "sasl.jaas.config":
            properties.update(_login(value))
        elif name == "ssl.endpoint.identification.algorithm":
            properties[name] = value.strip() or "none"
        elif name not in _STORES:
            properties[_RENAMED.get(name, name)] = _value(name, value)
    return {**_trust_store(java), **_key_store(java), **properties, **_raised(properties)}


def _value(name: str, value: str) -> str:
    text = value.strip()
    if name in _RANGES and text.isdecimal():
        least, greatest = _RANGES[name]
        number = int(text) if len(text) < _LONG_DIGITS else greatest  # int() fails on thousands of digits
        return str(min(max(number, least), greatest))
    return _VALUES.get((name, text), value)


def _raised(properties: Mapping[str, str]) -> dict[str, str]:
    raised = {}
    for lesser, its_default, greater, default in _ORDERED:
        least, given = properties.get(lesser, str(its_default)), properties.get(greater, str(default))
        if least.isdecimal() and given.isdecimal() and int(given) < int(least):
            raised[greater] = least
    return raised


def _login(jaas: str) -> dict[str, str]:
    parsed = _JAAS.fullmatch(_JAAS_COMMENT.sub(lambda found: found[1] or " ", jaas))
    if parsed is None:
        raise _wrong()
    module = parsed[1].rpartition(".")[2]
    known = _LOGIN_MODULES.get(module)
    if known is None:
        raise ConfigError(
            f"Kafka option 'sasl.jaas.config' names the login module {module}, which only the Java client has; "
            f"there are {', '.join(_LOGIN_MODULES)}",
            key=_JAAS_KEY,
            hint="Give librdkafka's own sasl.* properties as kafka.sasl.*",
        )
    options = {
        name: bare or _JAAS_ESCAPE.sub(_escaped, quoted[1:-1]) for name, quoted, bare in _JAAS_OPTION.findall(parsed[2])
    }
    if _JAAS_OPTION.sub("", parsed[2]).strip():
        raise _wrong()
    found = {known[name]: value for name, value in options.items() if name in known}
    more = _of_tokens(options) if module == "OAuthBearerLoginModule" and options else {}
    lacking = [name for name, value in options.items() if name not in known and not _is_needless(module, name, value)]
    if lacking:
        raise ConfigError(
            f"Kafka option 'sasl.jaas.config' has options of {module} that librdkafka does not have: "
            f"{', '.join(lacking)}",
            key=_JAAS_KEY,
            hint=f"Leave them out; of this module it has {', '.join(known)}",
        )
    return {**found, **more}


def _escaped(found: re.Match[str]) -> str:
    sign = found[1]
    return chr(int(sign, 8)) if sign[0] in "01234567" else _CONTROLS.get(sign, sign)


def _wrong() -> ConfigError:
    return ConfigError(
        "Kafka option 'sasl.jaas.config' is wrong: expected `<login module> required <name>=<value> ...;`",
        key=_JAAS_KEY,
    )


def _is_needless(module: str, name: str, value: str) -> bool:
    """Whether librdkafka logs in as the Java client does without this option."""
    if name == "tokenauth":  # of a delegation token (KIP-48)
        return value.strip().lower() != "true"
    if module == "OAuthBearerLoginModule" and name.startswith(_EXTENSION):
        return True
    return name in _NEEDLESS or name.startswith(_BROKERS_USER)


def _of_tokens(options: Mapping[str, str]) -> dict[str, str]:
    """The properties beside the client of an OAuthBearerLoginModule: where tokens come from, and SASL extensions."""
    unsecured = [name for name in options if name.startswith("unsecuredLogin")]
    if unsecured:
        raise ConfigError(
            f"Kafka option 'sasl.jaas.config' makes unsecured tokens ({', '.join(unsecured)}), which only the Java "
            "client does in this way",
            key=_JAAS_KEY,
            hint="For tests, leave it out, and give kafka.enable.sasl.oauthbearer.unsecure.jwt=true and "
            "kafka.sasl.oauthbearer.config='principal=NAME'",
        )
    extensions = [
        f"{name.removeprefix(_EXTENSION)}={_SPECIAL.sub(_ESCAPED, value)}"
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    ]
    more = {"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {}
    return {"sasl.oauthbearer.method": "oidc", **more}


def _trust_store(java: Mapping[str, str]) -> dict[str, str]:
    location = java.get("ssl.truststore.location")
    if location is None:
        return {}
    _refuse_unless(java.get("ssl.truststore.type"), ("PEM",), "ssl.truststore", "keytool -exportcert -rfc")
    return {"ssl.ca.location": location}


def _key_store(java: Mapping[str, str]) -> dict[str, str]:
    location = java.get("ssl.keystore.location")
    if location is None:
        return {}
    kind = _refuse_unless(java.get("ssl.keystore.type"), ("PEM", "PKCS12"), "ssl.keystore", "keytool -importkeystore")
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    password = java.get("ssl.keystore.password")
    return {"ssl.keystore.location": location, **({} if password is None else {"ssl.keystore.password": password})}


def _refuse_unless(kind: str | None, known: tuple[str, ...], name: str, tool: str) -> str:
    given = (kind or "JKS").strip().upper()
    if given in known:
        return given
    raise ConfigError(
        f"Kafka option '{name}.location' names a store of type {given}, which librdkafka does not read",
        key=f"kafka.{name}.type",
        hint=f"Convert it ({tool}) and give kafka.{name}.type={' or '.join(known)}",
    )

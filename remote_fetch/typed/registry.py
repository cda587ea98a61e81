"""A schema registry with Confluent's API, asked through confluent_kafka's client.

Rules of the file:

- A registry that is away is asked again until a deadline, as a broker is. One that refuses is not.
- An id that the registry does not know is the fault of a value, so it is Undecodable. So is any GUID, if the registry
  has none. A subject that it does not know is the fault of the configuration.
- No message has a secret: a URL is shown without user and password, and what a registry answers is not shown.
- Each context of a registry has ids of its own. If that is not the default one, its subjects have it in front
  (`:.context:subject`), and its ids are asked for with such a subject.
- Each schema is asked for once. The schemas that are known can be taken along to another process.
- The number of unknown ids that are kept is bounded: values name them, so it has no bound of its own.
- No rule of a schema (a data contract) is run. Bytes that a rule encoded do not decode.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from remote_fetch.deadline import Deadline, retry
from remote_fetch.errors import ConfigError, MissingExtra, RegistryDenied, RegistryUnavailable, UnknownSchema
from remote_fetch.hosts import is_http_url, shown_url
from remote_fetch.typed.outcome import Undecodable
from remote_fetch.typed.registry_http import bound_answers
from remote_fetch.typed.schema_text import SchemaRef, SchemaText

__all__ = ["Registry", "bare_url", "context_of"]

T = TypeVar("T")

_PAUSE_S = 0.5
_SILENT_S = 2.0
"""A longer wait for a registry has a line in the log, as one for a broker has."""
_DEFAULT_WAIT_S = 60.0
"""How long a registry that is away is waited for if `fetch.remote.broker.timeout.ms` is 0: a job has to end."""
_REQUEST_S = (1.0, 10.0)
"""How long one request may take, unless `schema.registry.timeout` says it: as long as the wait, between these.

The last request begins when the wait is over, and has the least of them.
"""
_NUMBERS = (
    "timeout", "cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.wait.ms", "retries.max.wait.ms",
)  # fmt: skip
_MOST_REFERENCES = 1000
"""Of one schema, with those of its references."""
_DEEPEST_REFERENCE = 50
_MAX_UNKNOWN = 1000
_LOG = logging.getLogger("remote_fetch.typed")
_CONTACT = logging.getLogger("remote_fetch.contact")
_AWAY = (408, 429, 500, 502, 503, 504)
_MISSING_ID = (40403, 40401, 40402)
_ANY_ID = 2**31 - 1
"""An id that a registry can be asked for, whether it has it or not."""
_OF_OTHERS = ("ReadError", "RemoteProtocolError")
"""httpx's errors for a connection that ends before an answer. The first: the server has not read the whole request."""


class Registry:
    """The schemas of a registry. `config` has the keys of `schema.registry.*` without that prefix."""

    def __init__(
        self, config: Mapping[str, str], wait_s: float, known: Mapping[SchemaRef, SchemaText] | None = None
    ) -> None:
        """`wait_s`: how long to wait for a registry that is away; 0 for the default. Raises ConfigError."""
        self._config = dict(config)
        self._wait_s = wait_s or _DEFAULT_WAIT_S
        self._known: dict[SchemaRef, SchemaText] = dict(known or {})
        self._unknown: set[SchemaRef] = set()
        self._references: dict[tuple[str, int], SchemaText] = {}
        self._client: Any = None
        self._until = Deadline.after(0)
        self._has_told_rules = False
        if "url" not in self._config:
            raise ConfigError("the format needs a registry: set schema.registry.url (-r)", key="schema.registry.url")
        self.url = bare_url(self._config["url"])

    @property
    def known(self) -> Mapping[SchemaRef, SchemaText]:
        """The schemas that were asked for and found, by id and by GUID."""
        return dict(self._known)

    def written(self, ref: SchemaRef, subject: str | None = None) -> SchemaText:
        """The schema that a framing names, in the context of the subject.

        Raises Undecodable if the registry does not know it, else as `version`.
        """
        at = SchemaRef(ref.id, ref.guid, context="" if ref.id is None else context_of(subject))
        found = self._known.get(at)
        if found is None and at not in self._unknown:
            found = self._ask_for(at, subject)
            if found is None:
                self._note_unknown(at)
            else:
                self._known[at] = found
        if found is None:
            raise Undecodable(f"the registry {self.url} does not know the schema of {at}")
        return found

    def _note_unknown(self, ref: SchemaRef) -> None:
        """Keep in mind that the registry does not know an id. Forget the ones before if they are many."""
        self._unknown.add(ref)
        if len(self._unknown) > _MAX_UNKNOWN:
            _LOG.warning(
                "the registry %s does not know %d schema ids of values. Each costs a request. Perhaps these values are "
                "not in Confluent's format, or another registry has their schemas",
                self.url,
                len(self._unknown),
            )
            self._unknown = {ref}

    def version(self, subject: str, version: str) -> SchemaText:
        """A version of a subject, by its number or `latest`.

        Raises UnknownSchema if it does not exist, RegistryDenied, and RegistryUnavailable if nothing answers in time.
        """
        if version == "latest":
            found = self._ask(lambda client: _version(client.get_latest_version(subject)), subject, version)
            return self._keep(found, subject)
        return self._keep(self._version_of(subject, int(version)), subject)

    def learn(self, subject: str, most: int) -> list[SchemaText]:
        """The newest `most` versions of a subject, newest first, so that others need not ask. Raises as `version`.

        A version with references that cannot be had is left out: it harms the values alone that it wrote.
        """
        versions = self._ask(lambda client: _numbers(client.get_versions(subject)), subject, "all")
        learned = []
        for number in sorted(versions, reverse=True)[:most]:
            with suppress(UnknownSchema, ConfigError):
                learned.append(self.version(subject, str(number)))
        return learned

    def close(self) -> None:
        """Close the connections. The next question opens one again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _version_of(self, subject: str, version: int, deleted: bool = False) -> Any:
        """`deleted`: also a deleted version, as one of a reference may be. A proxy's 404 is no answer about that."""

        def ask(client: Any) -> Any:
            return _version(client.get_version(subject, version, deleted))

        return self._ask(ask, subject, str(version), may_lack_path=deleted)

    def _keep(self, found: Any, subject: str) -> SchemaText:
        schema = self._text(found.schema, context_of(subject))
        if found.schema_id is not None:
            self._known[SchemaRef(id=found.schema_id, context=context_of(subject))] = schema
        if getattr(found, "guid", None):
            self._known[SchemaRef(guid=found.guid)] = schema
        return schema

    def _ask_for(self, ref: SchemaRef, subject: str | None) -> SchemaText | None:
        ask: Callable[[Any], Any] = (
            (lambda client: _schema(client.get_schema(ref.id, subject if ref.context else None)))
            if ref.guid is None
            else (lambda client: _schema(client.get_schema_by_guid(ref.guid)))
        )
        try:
            found = self._ask(ask, None, str(ref), may_lack_path=ref.guid is not None)
            try:
                return self._text(found, ref.context)
            except ConfigError as error:
                raise Undecodable(error.message) from error
        except UnknownSchema:
            return None

    def _text(self, schema: Any, context: str, depth: int = 0, left: Iterator[int] | None = None) -> SchemaText:
        """With all references, deleted ones too. They are of the schema's context unless they name one.

        Raises ConfigError for more of them than can be meant: `left` are those that may still be asked for.
        """
        left = iter(range(_MOST_REFERENCES)) if left is None else left
        references = []
        for each in schema.references or ():
            is_bare = context and not context_of(each.subject)
            at = (f":{context}:{each.subject}" if is_bare else each.subject, each.version)
            if at not in self._references:
                if depth > _DEEPEST_REFERENCE or next(left, None) is None:
                    raise ConfigError(f"the registry {self.url} has a schema with references without end")
                found = self._version_of(*at, deleted=True)
                self._references[at] = self._text(found.schema, context_of(at[0]), depth + 1, left)
            references.append((each.name, self._references[at]))
        kind, is_encoded = schema.schema_type or "AVRO", self._note_rules(getattr(schema, "rule_set", None))
        return SchemaText(kind, schema.schema_str, tuple(references), is_encoded)

    def _note_rules(self, rules: Any) -> bool:
        """Whether one of a schema's rules encodes the bytes of its values. Other rules have one line in the log."""
        others = ("domain_rules", "migration_rules")
        if not self._has_told_rules and any(_concern_readers(getattr(rules, name, None)) for name in others):
            self._has_told_rules = True
            _LOG.warning(
                "the registry %s has rules for the values of a schema. No rule is run: values come as they were "
                "written, and encrypted fields stay encrypted",
                self.url,
            )
        return _concern_readers(getattr(rules, "encoding_rules", None))

    def _ask(self, ask: Callable[[Any], T], subject: str | None, what: str, may_lack_path: bool = False) -> T:
        """`may_lack_path`: any 404 means unknown if a registry gave it. Karapace and Apicurio have no path for GUIDs.

        If the 404 may be a proxy's, a second question tells. Raises RegistryUnavailable for a proxy's.
        """
        client, self._until = self._open(), Deadline.after(self._wait_s)
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError  # noqa: PLC0415 - an extra

        try:
            return retry(lambda: ask(client), Exception, until=self._until, pause_s=_PAUSE_S, may_pass=self._teller())
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status in (401, 403):
                raise RegistryDenied(
                    f"the schema registry {self.url} refuses the request ({status})",
                    hint="Check schema.registry.basic.auth.user.info or the other credentials of schema.registry.*",
                ) from None
            if may_lack_path and status == 404 and error.error_code not in _MISSING_ID:
                # Each registry has a path for ids. A proxy whose registry is away answers 404 there, too.
                with suppress(UnknownSchema):
                    self._ask(lambda client: _schema(client.get_schema(_ANY_ID)), None, str(_ANY_ID))
            if status == 404 and (error.error_code in _MISSING_ID or subject is not None or may_lack_path):
                named = f"the subject {subject}, version {what}" if subject is not None else f"the schema of {what}"
                hint = "Choose another with value.schema.subject or key.schema.subject"
                if error.error_code not in _MISSING_ID:  # a 404 of another server, or of another path of this one
                    hint += ". Or the path of schema.registry.url is wrong: Apicurio has the API at /apis/ccompat/v7"
                raise UnknownSchema(
                    f"the schema registry {self.url} does not know {named}", hint=None if subject is None else hint
                ) from None
            if status in _AWAY:
                raise RegistryUnavailable(f"the schema registry {self.url} answers {status}") from None
            raise RegistryUnavailable(
                f"{self.url} answers {status}, not as a schema registry does", hint="Check schema.registry.url"
            ) from None
        except OAuthTokenError:
            raise RegistryDenied(f"no token for the schema registry {self.url} could be got") from None
        except Exception as error:
            if not _may_pass(error):  # the client does not understand what came
                raise RegistryUnavailable(
                    f"{self.url} answers, but not as a schema registry does: {type(error).__name__}",
                    hint="Check schema.registry.url",
                ) from None
            raise RegistryUnavailable(f"the schema registry {self.url} does not answer: {_cause(error)}") from None

    def _teller(self) -> Callable[[Exception], bool]:
        """As `_may_pass`, for one question. If its answer is waited for, the log says so once."""
        silence, has_told = Deadline.after(_SILENT_S), False

        def may_pass(error: Exception) -> bool:
            nonlocal has_told
            if not _may_pass(error):
                return False
            if silence.is_over and not has_told:
                status = getattr(error, "http_status_code", None)
                cause = _cause(error) if status is None else f"it answers {status}"
                _CONTACT.warning("waiting %g s at most for the schema registry %s: %s", self._wait_s, self.url, cause)
                has_told = True
            return True

        return may_pass

    def _open(self) -> Any:
        if self._client is None:
            try:
                from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an extra
            except ImportError as error:
                raise MissingExtra(f"a schema registry needs {error.name}", extra="registry") from None
            self._client = _client(SchemaRegistryClient, self._config, self._wait_s)
            bound_answers(self._client, lambda: self._until.left_s)
        return self._client


def context_of(subject: str | None) -> str:
    """The context in front of a subject's name, such as `.lab` of `:.lab:orders-value`. Empty: the default one."""
    return subject.split(":")[1] if subject is not None and subject.startswith(":.") else ""


def bare_url(url: str) -> str:
    """The URLs without user, password and query. Raises ConfigError for text that is no URL, and shows none of it."""
    bare = []
    for each in url.split(","):
        # A path with an @ is the rest of a password with a slash. What follows the @ would be shown.
        if not is_http_url(each.strip()) or "@" in urlsplit(each.strip()).path:
            raise ConfigError(
                "schema.registry.url: no URL of a host and a port",
                key="schema.registry.url",
                hint="Begin it with http:// or https://. Write / ? # [ ] @ in a user or a password as %2F %3F %23 %5B "
                "%5D %40",
            )
        bare.append(shown_url(each.strip()))
    return ",".join(bare)


def _concern_readers(rules: Any) -> bool:
    return any(not rule.disabled and getattr(rule.mode, "name", None) != "WRITE" for rule in rules or ())


def _schema(found: Any) -> Any:
    """A schema of the client's. Raises TypeError if the answer had none, for the client takes any object for one."""
    _expect(found.schema_str, str)
    _expect(found.schema_type or "AVRO", str)
    for each in found.references or ():
        _expect(each.name, str)
        _expect(each.subject, str)
        _expect(each.version, int)
    return found


def _version(found: Any) -> Any:
    """As `_schema`, of a version of a subject."""
    _schema(found.schema)
    _expect(found.schema_id or 0, int)
    _expect(getattr(found, "guid", None) or "", str)
    return found


def _numbers(found: Any) -> list[int]:
    """As `_schema`, of the numbers of a subject's versions."""
    _expect(found, list)
    for each in found:
        _expect(each, int)
    return list(found)


def _expect(value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise TypeError(type(value).__name__)


def _client(kind: Callable[[dict[str, Any]], Any], config: Mapping[str, str], wait_s: float) -> Any:
    # The client's own retries wait longer and know no deadline.
    least, most = _REQUEST_S
    conf: dict[str, Any] = {"max.retries": 0, "timeout": min(max(wait_s, least), most)}
    for name, value in config.items():
        try:
            conf[name] = float(value) if name in _NUMBERS else value
        except ValueError:
            raise ConfigError(f"schema.registry.{name}: give a number", key=f"schema.registry.{name}") from None
    _move_user(conf)
    if not _uses_tls(conf):
        conf.setdefault("ssl.ca.location", False)  # else the client reads all certificates, 30 ms for each process
    try:
        return kind(conf)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"schema.registry.*: {error}", key="schema.registry") from None
    except OSError as error:
        raise ConfigError(
            f"schema.registry.ssl.*: {type(error).__name__}: {error.strerror}", key="schema.registry"
        ) from None


def _uses_tls(conf: Mapping[str, Any]) -> bool:
    """Whether anything may be asked over TLS: a URL, or a server of tokens. The client follows no redirects."""
    return "https://" in conf["url"] or any(name.startswith("bearer.") for name in conf)


def _move_user(conf: dict[str, Any]) -> None:
    """Take user and password out of the URLs: the HTTP library logs each URL that it asks."""
    bare = []
    for each in conf["url"].split(","):
        parts = urlsplit(each.strip())
        user, at, host = parts.netloc.rpartition("@")
        if at:
            conf.setdefault("basic.auth.user.info", unquote(user))
        bare.append(urlunsplit((parts.scheme, host, parts.path, "", "")))
    conf["url"] = ",".join(bare)


def _cause(error: Exception) -> str:
    """The system's words for an error, else its name. And words if the server speaks another protocol, as a broker."""
    link: BaseException | None = error
    while link is not None and not (isinstance(link, OSError) and link.strerror):
        link = link.__cause__ or link.__context__
    name = type(error).__name__
    said = name if link is None else str(link.strerror)
    return said if name not in _OF_OTHERS else f"{said}. Perhaps another server than a registry is there"


def _may_pass(error: Exception) -> bool:
    status = getattr(error, "http_status_code", None)
    if status is not None:
        return status in _AWAY
    return isinstance(error, (OSError, TimeoutError)) or type(error).__module__.split(".")[0] in ("httpx", "httpx2")

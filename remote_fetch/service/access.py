"""May these credentials READ this topic? The brokers decide, and their answers hold for a few seconds.

Rules of the file:

- Answers lie under an HMAC-SHA-256 of credentials and topic, with a key of this process. No credential is kept.
- A yes ends after `allowed_s`, a no after `refused_s`. No answer of the brokers is no answer, and is not kept.
- Questions run at most `asks` at once. Half of them, and half of all requests, are for credentials that the brokers
  have taken before. So wrong credentials do not keep out the right ones, however many they are.
- Wrong credentials slow down further ones under the same name from the same address. A stranger elsewhere who tries a
  user's passwords does not lock the user out. A token that shows no name slows down itself alone.
- One question runs for the same credentials and topic. All who wait share its answer.
- A refusal has the brokers' code and words. A principal that may not describe a topic gets the same refusal whether
  the topic exists or not, because the brokers answer so.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException

from remote_fetch.errors import RemoteFetchError
from remote_fetch.failures.broker_errors import is_passing
from remote_fetch.model import TopicIdPartition, Uuid
from remote_fetch.recent import Recent
from remote_fetch.service.credentials import Credentials, challenge
from remote_fetch.service.limits import Slowdown
from remote_fetch.service.refusals import Refusal, overloaded
from remote_fetch.service.settings import ServiceSettings
from remote_fetch.service.work import Workers
from remote_fetch.session.principals import Answer, CredentialsRefused

__all__ = ["Access", "Allowed", "Ask"]

Ask = Callable[[Credentials, str | None], Answer]
"""Asks the brokers as the principal about a topic (None: about nothing): see `session/principals.py: ask_as`."""

_Who: TypeAlias = tuple[str, str]
"""A name that a client has shown, or the hash of a token without a name, and the address it was shown from."""

_MOST_ANSWERS = 10_000
_TAKEN_S = 3600.0
"""How long credentials count as taken before, for the order of questions. It permits nothing."""
_NAMES_AT_ONCE = 2
"""How many credentials of one name and address are asked about at once, if the brokers have taken none of them."""
_RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class Allowed:
    """The principal may READ the topic, which has this id and these partitions."""

    name: str
    topic_id: Uuid | None
    partitions: tuple[int, ...]

    def partition(self, number: int) -> TopicIdPartition:
        """The partition of this number. Raises Refusal (404) if there is none."""
        if number not in self.partitions:
            raise _unknown(f"topic {self.name} has no partition {number}")
        if self.topic_id is None:
            raise _unknown("the brokers report no topic ids, because they are older than Kafka 2.8")
        return TopicIdPartition(self.topic_id, self.name, number)


@dataclass(frozen=True, slots=True)
class _Kept:
    until_s: float
    outcome: Allowed | Refusal | None


class Access:
    """The answers of the brokers to principals. Used by the event loop alone; `ask` runs in threads of `workers`.

    `count` is called with the outcome of each question, in one word.
    """

    def __init__(
        self,
        ask: Ask,
        settings: ServiceSettings,
        workers: Workers,
        *,
        slowdown: Slowdown | None = None,
        clock: Callable[[], float],
        count: Callable[[str], None],
    ) -> None:
        self._ask = ask
        self._settings = settings
        self._workers = workers
        self._clock = clock
        self._count = count
        self._key = secrets.token_bytes(32)
        self._slowdown = slowdown or Slowdown(clock=clock)
        self._kept: Recent[bytes, _Kept] = Recent(_MOST_ANSWERS)
        self._taken: Recent[bytes, float] = Recent(_MOST_ANSWERS)
        self._running: dict[bytes, asyncio.Task[Allowed | None]] = {}
        self._names: dict[_Who, Counter[bytes]] = {}
        self._strangers = asyncio.Semaphore(max(settings.asks // 2, 1))
        self._waiting = 0

    def digest(self, credentials: Credentials, *more: str) -> bytes:
        """The keyed hash of credentials. Another process gives another one."""
        return hmac.digest(self._key, credentials.key_bytes(*more), hashlib.sha256)

    async def authenticate(self, credentials: Credentials, origin: str) -> None:
        """Check that the brokers accept the credentials. `origin` is the address of the client.

        Raises Refusal: 401, 429, 503.
        """
        await self._decide(credentials, None, origin)

    async def may_read(self, credentials: Credentials, topic: str, origin: str) -> Allowed:
        """The topic, if its principal may READ it. Raises Refusal: 401, 403, 404, 429, 503."""
        allowed = await self._decide(credentials, topic, origin)
        if allowed is None:
            raise overloaded("the brokers have not described the topic")
        return allowed

    async def _decide(self, credentials: Credentials, topic: str | None, origin: str) -> Allowed | None:
        own = self.digest(credentials)
        key = own if topic is None else self.digest(credentials, topic)
        for known in (own, key):  # wrong credentials are wrong for every topic
            kept = self._found(known)
            outcome = None if kept is None else kept.outcome
            if isinstance(outcome, Refusal):
                raise outcome.again()
            if kept is not None and known == key:
                return outcome
        running = self._running.get(key)
        if running is None:
            who = credentials.name or own.hex(), origin
            asked = self._asked(credentials, topic, who, own, key)
            running = self._running[key] = asyncio.create_task(asked)
            running.add_done_callback(lambda task: self._ended(key, task))
        return await asyncio.shield(running)

    def _ended(self, key: bytes, task: asyncio.Task[Allowed | None]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # a request that has ended does not take it

    async def _asked(
        self, credentials: Credentials, topic: str | None, who: _Who, own: bytes, key: bytes
    ) -> Allowed | None:
        async with self._room(who, own):
            try:
                async with asyncio.timeout(2 * self._settings.ask_timeout_s):
                    outcome = await self._workers.run(lambda: self._outcome(credentials, topic))
            except TimeoutError:
                outcome = _unanswered()
        self._count(_word(outcome))
        if isinstance(outcome, Refusal):
            if outcome.status == 401:
                self._slowdown.failed(who)
                self._keep(own, outcome, self._settings.refused_s)
            elif outcome.status != 503:
                self._took(own)
                self._keep(key, outcome, self._settings.refused_s)
            raise outcome.again()
        self._took(own)
        self._keep(key, outcome, self._settings.allowed_s)
        return outcome

    def _outcome(self, credentials: Credentials, topic: str | None) -> Allowed | Refusal | None:
        """The brokers' answer. Called in a thread.

        A refusal is returned and not raised: an error holds the frames that it has passed, and in these the client of
        the question, with its threads and sockets.
        """
        try:
            return _judged(self._ask(credentials, topic))
        except CredentialsRefused:
            words = "the brokers refuse these credentials"
            return Refusal(401, "SASL_AUTHENTICATION_FAILED", words, headers=challenge(self._settings.mechanisms))
        except KafkaException as error:
            return _of_brokers(error)
        except RemoteFetchError:
            return _unanswered()

    @asynccontextmanager
    async def _room(self, who: _Who, own: bytes) -> AsyncIterator[None]:
        """The room of one question, waited for. Raises Refusal (429, 503) if there will be none."""
        if self._taken.get(own, 0.0) > self._clock():
            yield
            return
        self._slowdown.check(who)
        under_way = self._names.get(who, Counter())
        if own not in under_way and len(under_way) >= _NAMES_AT_ONCE:
            raise Refusal(429, "TOO_MANY_FAILURES", "other credentials under this name are being checked", _RETRY_S)
        if self._waiting >= max(self._settings.max_requests // 2, 1):
            raise overloaded("too many new credentials are being checked")
        self._names[who] = under_way
        under_way[own] += 1
        self._waiting += 1
        try:
            async with self._strangers:
                yield
        finally:
            self._waiting -= 1
            under_way[own] -= 1
            if not under_way[own]:
                del under_way[own]
            if not under_way:
                self._names.pop(who, None)

    def _found(self, key: bytes) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is not None and kept.until_s <= self._clock():
            del self._kept[key]
            return None
        return kept

    def _keep(self, key: bytes, outcome: Allowed | Refusal | None, lifetime_s: float) -> None:
        self._kept[key] = _Kept(self._clock() + lifetime_s, outcome)

    def _took(self, own: bytes) -> None:
        self._taken[own] = self._clock() + _TAKEN_S


def _judged(topic: Answer) -> Allowed | Refusal | None:
    if topic is None:
        return None
    if not topic.may_read:
        return Refusal(403, "TOPIC_AUTHORIZATION_FAILED", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED).str())
    return Allowed(topic.name, topic.topic_id, topic.partitions)


def _unanswered() -> Refusal:
    return Refusal(503, "BROKERS_UNAVAILABLE", "no broker has answered for this principal", _RETRY_S)


def _of_brokers(error: KafkaException) -> Refusal:
    """The brokers' error about a topic, with their code and words."""
    said = error.args[0]
    if said.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return Refusal(403, said.name(), said.str())
    if said.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return _unknown(said.str())
    if said.code() == KafkaError.TOPIC_EXCEPTION:
        return Refusal(400, "INVALID_TOPIC_EXCEPTION", said.str())
    if is_passing(error):
        return Refusal(503, "BROKERS_UNAVAILABLE", f"the brokers do not answer: {said.str()}", _RETRY_S)
    return Refusal(503, said.name(), f"the brokers answer: {said.str()}", _RETRY_S)


def _unknown(message: str) -> Refusal:
    return Refusal(404, "UNKNOWN_TOPIC_OR_PART", message)


def _word(outcome: Allowed | Refusal | None) -> str:
    words = {401: "wrong-credentials", 403: "forbidden", 404: "unknown-topic", 503: "unanswered"}
    return words.get(outcome.status, "other") if isinstance(outcome, Refusal) else "allowed"

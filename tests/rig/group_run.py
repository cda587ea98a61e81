"""Runs a group of three consumers over twelve tiered partitions, while producers write and random events disturb it.

Rules of the file:

- A seed decides which events happen, but not when.
- Every wait has a deadline.
- The run makes no judgement. The checker gets the events, and another reader reads the visible offsets afterwards.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer

from tests.rig import topics
from tests.rig.group_checker import Delivered, Event, Told, breaches
from tests.rig.group_members import Member, Setting, Style
from tests.rig.rig import Rig
from tests.rig.workload_oracle import Place
from tests.rig.workload_writes import Transactions

__all__ = ["DECK", "PARTITIONS", "GroupRun", "background", "history", "places", "visible", "watch_commits", "write"]

PARTITIONS = 6
"""The partitions of each of the two topics."""

DECK = {
    "join": 3,
    "leave": 3,
    "restart": 4,
    "resubscribe": 2,
    "narrow": 2,
    "seek": 7,
    "pause": 4,
    "resume": 2,
    "commit": 3,
}
"""How often each kind of event comes in a round of thirty events."""

_TIMEOUT_S = 120
_MOST_MEMBERS, _FEWEST_MEMBERS = 4, 2
_SIZES = (0, 24, 200, 400)
_FIRST_RECORDS = 120
_TRANSACTIONS = 3
_PACE_S = 0.02
_RECORDS_BETWEEN = 60
_MOST_BETWEEN_S = 0.2


def places(names: Sequence[str]) -> list[Place]:
    """The partitions of the topics."""
    return [(name, partition) for name in names for partition in range(PARTITIONS)]


def history(rig: Rig, names: Sequence[str]) -> None:
    """Make the topics, with committed and aborted records in the tier."""
    dice = random.Random(0)
    producer = Producer({"bootstrap.servers": rig.bootstrap, "batch.num.messages": 10, **topics.QUIET})
    transactions = Transactions(rig, names[0])
    for name in names:
        topics.create_topic(rig, name, PARTITIONS)
    transactions.begin(0)
    for how in ("abort", "commit"):
        for topic, partition in places(names):
            for number in range(_FIRST_RECORDS // 2):
                topics.produce_one(producer, topic, partition, number, dice, _SIZES)
            transactions.write(0, (topic, partition), dice)
        if producer.flush(_TIMEOUT_S):
            raise TimeoutError("the first records were not delivered")
        transactions.end(0, how)
        if how == "abort":
            transactions.begin(0)
    for name in names:
        topics.wait_tiered(rig, name, range(PARTITIONS))


def write(rig: Rig, name: str, targets: Sequence[Place], dice: random.Random, ends: threading.Event) -> None:
    """Write to the partitions, in transactions and without, until `ends` is set. Leaves no transaction open."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "batch.num.messages": 7, "linger.ms": 5, **topics.QUIET})
    transactions = Transactions(rig, name)
    number = 0
    while not ends.wait(_PACE_S):
        place, what = dice.choice(targets), dice.random()
        if what < 0.7:
            for _ in range(dice.choice((1, 3, 10))):
                number += 1
                topics.produce_one(producer, *place, number, dice, _SIZES)
        elif what < 0.95:
            transaction = dice.randrange(_TRANSACTIONS)
            if transaction not in transactions.numbers:
                transactions.begin(transaction)
            transactions.write(transaction, place, dice)
        elif transactions.numbers:
            if producer.flush(_TIMEOUT_S):
                raise TimeoutError("records were not delivered")
            transactions.end(dice.choice(transactions.numbers), dice.choice(("commit", "abort", "fence")))
    if producer.flush(_TIMEOUT_S):
        raise TimeoutError("records were not delivered")
    for transaction in transactions.numbers:
        transactions.end(transaction, dice.choice(("commit", "abort")))


def watch_commits(rig: Rig, group: str, events: list[Event], ends: threading.Event) -> None:
    """Ask repeatedly for the group's committed offsets."""
    client = topics.admin(rig)
    while not ends.wait(_PACE_S):
        asked_ns = time.monotonic_ns()
        with suppress(KafkaException):  # the group does not exist yet
            (future,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
            found, told_ns = future.result(_TIMEOUT_S).topic_partitions, time.monotonic_ns()
            known = (one for one in found if one.offset >= 0)
            events.extend(Told(told_ns, (one.topic, one.partition), one.offset, asked_ns) for one in known)


def visible(rig: Rig, names: Sequence[str], isolation: str) -> dict[Place, list[int]]:
    """The offsets of all records that a plain consumer gets."""
    return {place: [one.offset for one in topics.broker_records(rig, *place, isolation)] for place in places(names)}


@contextmanager
def background(name: str, work: object, *arguments: object) -> Iterator[threading.Event]:
    """Run a thread during the block, and stop it afterwards. Raises the error of the thread."""
    ends, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(*arguments, ends)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield ends
    finally:
        ends.set()
        thread.join(_TIMEOUT_S)
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise TimeoutError(f"{name} does not end")


class GroupRun:
    """One group and its events, which are drawn from `seed`. `log` has the events, and `counts` their numbers."""

    def __init__(self, rig: Rig, setting: Setting, kinds: Sequence[str], seed: int) -> None:
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self.events: list[Event] = []
        self._rig = rig
        self._setting = setting
        self._dice = random.Random(f"{seed}/group")
        # The kinds take turns, so that each kind is there from the beginning.
        self._kinds = itertools.cycle(self._dice.sample(kinds, len(kinds)))
        self._members: list[Member] = []
        self._born = 0

    def run(self, fewest: int, deadline_s: float) -> list[str]:
        """Make at least `fewest` events, and more until `deadline_s` (monotonic clock).

        Returns the checker's findings.
        """
        targets, dice = places(self._setting.topics), random.Random(self._dice.random())
        with background("bystander", watch_commits, self._rig, self._setting.group, self.events):
            try:
                with background("writer", write, self._rig, self._setting.group, targets, dice):
                    for _ in range(3):
                        self._join()
                    done = 0
                    while done < fewest or time.monotonic() < deadline_s:
                        cards = self._dice.sample(list(DECK), k=sum(DECK.values()), counts=list(DECK.values()))
                        for card in cards[: None if time.monotonic() < deadline_s else fewest - done]:
                            self._wait_records()
                            getattr(self, f"_{card}")()
                            self.counts[card] += 1
                            done += 1
                seen = visible(self._rig, self._setting.topics, self._setting.isolation)
                self._drain(seen)
            finally:
                while self._members:
                    self._leave(fewest=0)
        return breaches(self.events, seen)

    # ---------------------------------------------------------------------------------------------- what befalls it

    def _join(self) -> None:
        if len(self._members) >= _MOST_MEMBERS:
            return
        self._born += 1
        style = Style.draw(self._dice, next(self._kinds))
        member = Member(f"m{self._born}", self._setting, style, self.events, self._say)
        self._say(f"join {member.name} {style}")
        member.start()
        self._members.append(member)

    def _leave(self, *, fewest: int = _FEWEST_MEMBERS) -> None:
        if len(self._members) <= fewest:
            return
        member = self._members.pop(self._dice.randrange(len(self._members)))
        self._say(f"leave {member.name}")
        member.end()
        if member.style.kind == "on":
            self.counts["records from the broker"] += member.from_broker
            self.counts["records from the store"] += member.delivered - member.from_broker

    def _restart(self) -> None:
        self._leave(fewest=0)
        self._join()

    def _resubscribe(self) -> None:
        member = self._any()
        member.order(member.resubscribe)

    def _narrow(self) -> None:
        """Let one member read only one of the topics, or both again."""
        member = self._any()
        chosen = self._setting.topics[: self._dice.choice((1, 2))]
        self._say(f"  of {chosen}")
        member.order(member.subscribe, chosen)

    def _seek(self) -> None:
        self._order("seek", random.Random(self._dice.random()))

    def _pause(self) -> None:
        self._order("pause", random.Random(self._dice.random()))

    def _resume(self) -> None:
        self._order("resume")

    def _commit(self) -> None:
        self._order("commit", random.Random(self._dice.random()))

    def _order(self, name: str, *arguments: object) -> None:
        member = self._any()
        self._say(f"{name} {member.name}")
        member.order(getattr(member, name), *arguments)

    def _any(self) -> Member:
        return self._dice.choice(self._members)

    def _say(self, text: str) -> None:
        self.log.append(f"{time.monotonic_ns()} {text}")

    # ------------------------------------------------------------------------------------------------------ waiting

    def _wait_records(self) -> None:
        """Wait until some records have been delivered, but not for ever, because all partitions may be paused."""
        wanted = self._delivered() + self._dice.randrange(_RECORDS_BETWEEN)
        deadline_s = time.monotonic() + _MOST_BETWEEN_S
        while self._delivered() < wanted and time.monotonic() < deadline_s:
            time.sleep(_PACE_S)

    def _delivered(self) -> int:
        for member in self._members:
            member.check()
        return sum(member.delivered for member in self._members)

    def _drain(self, seen: dict[Place, list[int]]) -> None:
        """Make all members resume and subscribe to all topics. Wait until every visible record has been delivered."""
        self._say("drain")
        for member in self._members:
            member.order(member.subscribe, self._setting.topics)
        ends = {place: offsets[-1] for place, offsets in seen.items() if offsets}
        deadline_s, looked_at = time.monotonic() + _TIMEOUT_S, 0
        while ends and time.monotonic() < deadline_s:
            for member in self._members:
                member.check()
                member.order(member.resume)
            looked_at, new = len(self.events), self.events[looked_at:]
            for event in new:
                if isinstance(event, Delivered) and event.offset >= ends.get(event.place, event.offset + 1):
                    del ends[event.place]
            time.sleep(_PACE_S * 5)
        self._say(f"drained; the last record of {list(ends)} has not come")

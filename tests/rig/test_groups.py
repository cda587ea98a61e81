"""In groups with every kind of event, the members get exactly the records that the members of a plain group get."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from tests.cases import of_a_change
from tests.rig.group_apart import Ran, run_apart
from tests.rig.group_checker import Assigned, Delivered, Event, Revoked, breaches
from tests.rig.group_child import run_child
from tests.rig.group_members import KINDS, LostItsBrokers, Member, Setting, StaysInside, Style
from tests.rig.group_run import history, visible
from tests.rig.rig import Rig
from tests.rig.workload_oracle import Place

ISOLATIONS = ("read_committed", "read_uncommitted")
WAYS = [
    ("rig_39", "eager", ISOLATIONS[0]),
    ("rig_39", "cooperative", ISOLATIONS[0]),
    ("rig_39", "eager", ISOLATIONS[1]),
    ("rig_39", "cooperative", ISOLATIONS[1]),
    pytest.param("rig_43", "eager", ISOLATIONS[0], marks=pytest.mark.scheduled),
    pytest.param("rig_43", "cooperative", ISOLATIONS[1], marks=pytest.mark.scheduled),
    ("rig_43", "consumer", ISOLATIONS[0]),
    pytest.param("rig_43", "eager", ISOLATIONS[1], marks=pytest.mark.scheduled),
    pytest.param("rig_43", "cooperative", ISOLATIONS[0], marks=pytest.mark.scheduled),
    pytest.param("rig_43", "consumer", ISOLATIONS[1], marks=pytest.mark.scheduled),
]
CONTROL = pytest.param("plain", marks=pytest.mark.scheduled)
"""confluent_kafka's own consumer: it shows that the checker is right. A change of this project does not touch it."""
SHARES = 32
"""Each group runs for `--workload-seconds` divided by this number."""
_SHOWN = 60
_TRIES = 3
_TIMEOUT_S = 120

Settings = Callable[[str, str, str], tuple[Rig, Setting]]


@pytest.fixture(scope="module")
def settings(request: pytest.FixtureRequest, new_topic: Callable[[str], str]) -> Settings:
    """Makes the setting of a new group over the topics that all groups of a broker read."""
    topics: dict[str, tuple[str, ...]] = {}

    def setting(fixture: str, protocol: str, isolation: str) -> tuple[Rig, Setting]:
        rig: Rig = request.getfixturevalue(fixture)
        if fixture not in topics:
            topics[fixture] = new_topic("groups-a"), new_topic("groups-b")
            history(rig, topics[fixture])
        group = new_topic(f"group-{protocol}-{isolation}")
        return rig, Setting(rig.bootstrap, str(rig.remote), group, protocol, isolation, topics[fixture])

    return setting


def run_group(found: tuple[Rig, Setting], kinds: tuple[str, ...], config: pytest.Config, test: str) -> None:
    rig, setting = found
    given = config.getoption("workload_seed")
    first_seed = random.SystemRandom().randrange(10**9) if given is None else given
    seconds = config.getoption("workload_seconds") / SHARES
    for seed in range(first_seed, first_seed + _TRIES):
        group = setting if seed == first_seed else replace(setting, group=f"{setting.group}-again-{seed}")
        ran = run_apart(rig, group, kinds, seed, seconds)
        if not proves_nothing(ran, kinds):
            break
        print(f"\nseed {seed}:", *ran.wrong[:20], sep="\n")
    who = f"Kafka {rig.version}, {setting.protocol}, {setting.isolation}, seed {seed}"
    again = f"The same again: pytest tests/rig/test_groups.py -k '{test}' --workload-seed {seed}"
    assert not ran.wrong, "\n".join([*ran.wrong[:20], f"{who}; what happened:", *ran.log[-_SHOWN:], again])
    print(f"\n{who}:", dict(ran.counts))
    assert shows_something(ran, kinds)


def proves_nothing(ran: Ran, kinds: tuple[str, ...]) -> bool:
    """Whether a rare thing happened that the product does not cause. Then the test runs another group.

    - librdkafka 2.16 may abort the process if a client is closed during a rebalance.
    - On a busy machine, a late commit of librdkafka's consumer may follow a commit of the partition's new owner.
    - librdkafka's members may leave no records to ours.
    """
    return ran.was_aborted or (kinds != ("on",) and bool(ran.wrong or not shows_something(ran, kinds)))


def shows_something(ran: Ran, kinds: tuple[str, ...]) -> bool:
    """Whether our members got records, and if the group has only these, records from the store.

    In a mixed group the other members may read all tiered records, or all records, before ours get a partition.
    """
    from_store, from_broker = (ran.counts[f"records from the {place}"] for place in ("store", "broker"))
    return "on" not in kinds or from_store > 0 or (kinds != ("on",) and from_broker > 0)


@pytest.mark.soak
@pytest.mark.scheduled
@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "protocol", "isolation"), WAYS)
def test_a_group(
    fixture: str, protocol: str, isolation: str, settings: Settings, request: pytest.FixtureRequest
) -> None:
    run_group(settings(fixture, protocol, isolation), ("on",), request.config, request.node.name)


@pytest.mark.soak
@pytest.mark.scheduled
@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", [pytest.param(("plain",), marks=pytest.mark.scheduled), KINDS], ids=["plain", "mixed"]
)
@pytest.mark.parametrize(
    ("protocol", "isolation"),
    of_a_change([("consumer", ISOLATIONS[0]), ("eager", ISOLATIONS[0]), ("cooperative", ISOLATIONS[1])]),
)
def test_the_same_of_other_members(
    protocol: str, isolation: str, kinds: tuple[str, ...], settings: Settings, request: pytest.FixtureRequest
) -> None:
    run_group(settings("rig_43", protocol, isolation), kinds, request.config, request.node.name)


AFTER = (70, 250, 500)
"""The number of records before the change: within the first segments, after the first partitions, far into the log."""


def read_on(setting: Setting, style: Style, name: str, is_done: Callable[[list[Event]], bool]) -> list[Event]:
    """The events of a member until its end."""
    events: list[Event] = []
    notices: list[str] = []
    member = Member(name, setting, style, events, notices.append)
    member.start()
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not is_done(events.copy()) and time.monotonic() < deadline_s:
        member.check()
        time.sleep(0.02)
    member.end()
    assert is_done(events), "\n".join(notices)
    return events


def delivered(events: list[Event]) -> list[tuple[Place, int]]:
    """The delivered records, in order."""
    return [(event.place, event.offset) for event in events if isinstance(event, Delivered)]


def is_enough(records: int, events: list[Event]) -> bool:
    return len(delivered(events)) >= records


def is_complete(seen: dict[Place, list[int]], *parts: list[Event]) -> bool:
    """Whether all visible records have been delivered."""
    given = {one for events in parts for one in delivered(events)}
    return all((place, offset) in given for place, offsets in seen.items() for offset in offsets)


def has_all(seen: dict[Place, list[int]], before: list[Event], events: list[Event]) -> bool:
    """Whether all visible records have been delivered, and the last member has begun at each partition.

    The member before may have read all records: it reads until the broker has answered to its commit.
    """
    begun = {event.place for event in events if isinstance(event, Assigned)}
    return begun == set(seen) and is_complete(seen, before, events)


def is_enough_or_all(records: int, seen: dict[Place, list[int]], before: list[Event], events: list[Event]) -> bool:
    """Whether enough records were delivered, or all: a member may have read to the end before the test looks."""
    return is_enough(records, events) or is_complete(seen, before, events)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixture", "protocol", "commits_itself"),
    [
        ("rig_39", "eager", False),
        pytest.param("rig_43", "eager", False, marks=pytest.mark.scheduled),
        ("rig_43", "cooperative", True),
        pytest.param("rig_43", "consumer", False, marks=pytest.mark.scheduled),
    ],
)
def test_switched_on_and_off_and_on_again(
    fixture: str, protocol: str, commits_itself: bool, settings: Settings
) -> None:
    """KIP-1254, Downgrade: each consumer goes on at exactly the offsets that the consumer before it has committed."""
    rig, setting = settings(fixture, protocol, ISOLATIONS[commits_itself])
    seen = visible(rig, setting.topics, setting.isolation)
    events: list[Event] = []
    for number, records in enumerate(AFTER):
        style = Style("off" if number % 2 else "on", commits_itself, consumes=False, assigns=False, when="always")
        events += read_on(setting, style, f"m{number}", partial(is_enough_or_all, records, seen, events))
    rest = Style("off", commits_itself, consumes=False, assigns=False)
    events += read_on(setting, rest, "last", partial(is_complete, seen, events))
    assert not breaches(events, seen)
    assert max(Counter(delivered(events)).values()) == 1, "each had committed what it was given"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "commits_itself"),
    of_a_change(
        [("eager", True), ("cooperative", False), ("consumer", False), ("consumer", True)],
        ("consumer", True),
    ),
)
def test_killed_and_restarted(protocol: str, commits_itself: bool, settings: Settings) -> None:
    """After SIGKILL during a read, the next consumer begins at the committed offsets, and no record is lost."""
    rig, setting = settings("rig_43", protocol, ISOLATIONS[commits_itself])
    seen = visible(rig, setting.topics, setting.isolation)
    style = Style("on", commits_itself, consumes=not commits_itself, assigns=False, when="always")
    events = run_child("killed", setting, style, AFTER[-1])
    events += [Revoked(time.monotonic_ns(), "killed", place) for place in seen]
    events += read_on(setting, style, "next", partial(has_all, seen, events))
    assert not breaches(events, seen)
    begun = [event for event in events if isinstance(event, Assigned) and event.member == "next"]
    assert any(event.offset for event in begun), "the one that was killed had committed"


SILENT_S = 8
LONGEST_SILENCE_MS = 6500
"""librdkafka refuses a value below the session timeout."""


def run_two(
    setting: Setting, kind: str, seen: dict[Place, list[int]], befall: Callable[[Member], None], **more: object
) -> list[Event]:
    """The events of two members. The first is disturbed after some records. At the end all records have been read."""
    events, notices = list[Event](), list[str]()
    members = [
        Member(name, setting, Style(kind, commits, consumes=commits, assigns=False), events, notices.append, **more)
        for name, commits in (("first", False), ("second", True))
    ]

    def wait(is_done: Callable[[list[Event]], bool]) -> None:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not is_done(events.copy()):
            for member in members:
                member.check()
                if time.monotonic() > deadline_s:
                    member.check_brokers()
            assert time.monotonic() < deadline_s, "\n".join(notices)
            time.sleep(0.02)

    for member in members:
        member.start()
    try:
        wait(partial(is_enough, AFTER[0]))
        befall(members[0])
        wait(partial(is_complete, seen))
        for member in members:
            member.end()
    finally:
        for member in members:  # also after a failure
            member.tell_to_end()
    return events


def all_is_read(found: tuple[Rig, Setting], kind: str, befall: Callable[[Rig, Member], None], **more: object) -> None:
    """Check that two members lose no record and give none twice, although the first is disturbed."""
    rig, setting = found
    seen = visible(rig, setting.topics, setting.isolation)
    # As in `run_group`, there is a second attempt if librdkafka does not return from `close`, or has lost its brokers.
    # For librdkafka's own consumers there is one after any failure.
    with suppress(*((LostItsBrokers, StaysInside) if kind == "on" else (AssertionError, TimeoutError))):
        assert not breaches(run_two(setting, kind, seen, partial(befall, rig), **more), seen)
        return
    setting = replace(setting, group=f"{setting.group}-again")
    assert not breaches(run_two(setting, kind, seen, partial(befall, rig), **more), seen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["on", CONTROL])
@pytest.mark.parametrize("protocol", of_a_change(["consumer", "eager"]))
def test_a_member_is_silent_for_too_long(kind: str, protocol: str, settings: Settings) -> None:
    """The member loses its partitions (`max.poll.interval.ms`), is informed late, and joins again."""

    def be_silent(_: Rig, member: Member) -> None:
        member.order(time.sleep, SILENT_S)

    more = {"max.poll.interval.ms": LONGEST_SILENCE_MS}
    all_is_read(settings("rig_43", protocol, ISOLATIONS[0]), kind, be_silent, **more)


@pytest.mark.scheduled
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # kafka-python's, to a broker that is away
@pytest.mark.parametrize("kind", ["on", CONTROL])
def test_the_broker_restarts_under_a_group(kind: str, settings: Settings) -> None:
    def restart(rig: Rig, _: Member) -> None:
        rig.restart()

    all_is_read(settings("rig_43", "cooperative", ISOLATIONS[0]), kind, restart)
    gc.collect()  # the warnings about these sockets must not come in other tests

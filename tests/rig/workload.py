"""Runs a random workload on a real broker: all kinds of changes of a log, and reads between them that must be right.

Rules of the file:

- A seed decides the steps. Each step has its own random generator, so that timing (how far tiering has come, how many
  steps fit) changes no other step.
- Every step is recorded.
- Every wait has a deadline.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from tests.rig import topics
from tests.rig.faults import failing_uploads, new_leader_epoch
from tests.rig.rig import Rig
from tests.rig.workload_oracle import Place, Times, log_ends
from tests.rig.workload_reads import ISOLATIONS, Outcome, check_cat, check_outside, check_read, draw, whole
from tests.rig.workload_writes import PRODUCED_TIMES, Transactions, produce_batches

__all__ = ["DECK", "Workload"]

_TIMEOUT_S = 150
_TRANSACTIONS = 3
_FIRST_PRODUCERS = 3

DECK = {
    "produce": 16,
    "begin": 5,
    "continue": 8,
    "commit": 3,
    "abort": 4,
    "fence": 1,
    "read": 20,
    "read_faulty": 8,
    "read_while": 5,
    "read_outside": 2,
    "cat": 3,
    "delete_records": 2,
    "settings": 4,
    "wait_tiered": 3,
    "uploads": 2,
    "add_partition": 1,
    "restart": 1,
}
"""How often each kind of step comes in one run through all steps."""


class Workload:
    """One run: its own topics, and steps drawn from `seed`. `log` has the steps, and `counts` their numbers by kind."""

    def __init__(self, rig: Rig, name: str, seed: int) -> None:
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self._rig = rig
        self._seed = seed
        self._began_ms = int(time.time() * 1000)
        self._partitions = {f"{name}-created": 2, f"{name}-appended": 1}
        self._transactions = Transactions(rig, name)
        self._blocked: Place | None = None
        self._faults = ExitStack()

    def run(self, deadline_s: float) -> None:
        """Run the steps of the deck in a random order, until `deadline_s` (monotonic clock).

        Then tier everything, and read it once more. Raises Difference if a read does not equal the broker's.
        """
        dice = random.Random(f"{self._seed}/deck")
        cards = dice.sample(list(DECK), k=sum(DECK.values()), counts=list(DECK.values()))
        self._create(dice)
        with self._faults:
            for number, card in enumerate(cards):
                if time.monotonic() > deadline_s:
                    break
                self._step(number, card)
            self._finish(len(cards))

    def _create(self, dice: random.Random) -> None:
        for topic, partitions in self._partitions.items():
            kind = "LogAppendTime" if topic.endswith("appended") else "CreateTime"
            size_bytes = dice.choice((8192, 16_384, 65_536))
            topics.create_topic(self._rig, topic, partitions, segment_bytes=size_bytes, message_timestamp_type=kind)
            self._say(-1, f"create {topic} {partitions} {kind} segments of {size_bytes} bytes")
            for partition in range(partitions):
                for _ in range(_FIRST_PRODUCERS):
                    produce_batches(self._rig, (topic, partition), dice)

    def _step(self, number: int, card: str) -> None:
        step: Callable[[random.Random], str] = getattr(self, f"_{card}")
        self._say(number, card)
        began_s = time.monotonic()
        told = step(random.Random(f"{self._seed}/{number}"))
        self.counts[card] += 1
        self.log[-1] += f" {told} ({time.monotonic() - began_s:.1f} s)"

    def _say(self, number: int, text: str) -> None:
        self.log.append(f"{number:3} {text}")

    # ------------------------------------------------------------------------------------------------- what it is on

    def _place(self, dice: random.Random, *avoid: Place | None) -> Place:
        return dice.choice([place for place in self._places() if place not in avoid])

    def _places(self) -> list[Place]:
        return [(topic, partition) for topic, count in self._partitions.items() for partition in range(count)]

    def _times(self, topic: str, dice: random.Random) -> Times:
        """The range of times for a random bound: mostly the range of the topic's timestamps."""
        near_now = dice.random() < (0.9 if topic.endswith("appended") else 0.1)
        return Times(self._began_ms, int(time.time() * 1000)) if near_now else PRODUCED_TIMES

    # -------------------------------------------------------------------------------------------------------- writing

    def _produce(self, dice: random.Random) -> str:
        topic, partition = place = self._place(dice)
        told, written = produce_batches(self._rig, place, dice)
        self.counts["delivered records"] += written.delivered
        self.counts["refused records"] += written.refused
        return f"{topic}-{partition} {told}"

    def _begin(self, dice: random.Random) -> str:
        open_ones = self._transactions.numbers
        number = next((one for one in range(_TRANSACTIONS) if one not in open_ones), None)
        if number is None:
            return self._continue(dice)
        self._transactions.begin(number)
        return f"transaction {number}: {self._write(number, dice)}"

    def _continue(self, dice: random.Random) -> str:
        if not self._transactions.numbers:
            return self._begin(dice)
        number = dice.choice(self._transactions.numbers)
        return f"transaction {number}: {self._write(number, dice)}"

    def _write(self, number: int, dice: random.Random) -> str:
        topic, partition = place = self._place(dice)
        count = self._transactions.write(number, place, dice)
        self.counts["transactional records"] += count
        return f"{count} to {topic}-{partition}"

    def _commit(self, dice: random.Random) -> str:
        return self._end("commit", dice)

    def _abort(self, dice: random.Random) -> str:
        return self._end("abort", dice)

    def _fence(self, dice: random.Random) -> str:
        return self._end("fence", dice)

    def _end(self, how: str, dice: random.Random) -> str:
        begun = "" if self._transactions.numbers else self._begin(dice)
        number = dice.choice(self._transactions.numbers)
        self._transactions.end(number, how)
        return f"{begun} transaction {number}"

    # ------------------------------------------------------------------------------------------------ what befalls it

    def _delete_records(self, dice: random.Random) -> str:
        place = self._place(dice, self._blocked)
        ends = log_ends(self._rig, [place], "read_uncommitted")[place]
        share = dice.choice((dice.random() * 0.5, dice.random(), 1.0))
        offset = ends.start + int(share * (ends.stop - ends.start))
        topics.delete_records(self._rig, *place, offset)
        return f"{place} {ends} before {offset}"

    def _settings(self, dice: random.Random) -> str:
        topic = dice.choice(list(self._partitions))
        choices = {
            "compression_type": ("producer", "uncompressed", "gzip", "lz4", "zstd", "snappy"),
            "max_message_bytes": (6000, 1_048_588),
            "local_retention_ms": (1, -2),
            "message_timestamp_type": ("CreateTime", "LogAppendTime"),
            "index_interval_bytes": (0, 512, 4096),
        }
        name = dice.choice(sorted(choices))
        value = dice.choice(choices[name])
        topics.set_config(self._rig, topic, **{name: value})
        return f"{topic} {name}={value}"

    def _wait_tiered(self, dice: random.Random) -> str:
        topic = dice.choice(list(self._partitions))
        busy = {self._blocked, *self._transactions.places()}
        quiet = [partition for name, partition in self._places() if name == topic and (name, partition) not in busy]
        topics.set_config(self._rig, topic, local_retention_ms=1)
        gone_locally = dice.random() < 0.7
        topics.wait_tiered(self._rig, topic, quiet, gone_locally=gone_locally)
        return f"{topic} {quiet} gone_locally={gone_locally}"

    def _uploads(self, dice: random.Random) -> str:
        """Let the uploads of a partition fail, or heal them."""
        if self._blocked is not None:
            return self._heal()
        busy = self._transactions.places()  # the broker does not upload the end of a log with an open transaction
        if not set(self._places()) - busy:
            return "all have an open transaction"
        place = self._place(dice, *busy)
        topics.set_config(self._rig, place[0], local_retention_ms=1)
        wait_failure = self._faults.enter_context(failing_uploads(self._rig, *place))
        self._blocked = place
        while not produce_batches(self._rig, place, dice)[1].delivered:
            pass  # all of it was too large, and there is nothing to upload yet
        wait_failure()
        self.counts["failed uploads"] += 1
        return f"{place} fail"

    def _heal(self) -> str:
        healed, self._blocked = self._blocked, None
        self._faults.close()
        return f"{healed} heal"

    def _add_partition(self, dice: random.Random) -> str:
        topic = dice.choice(list(self._partitions))
        count = self._partitions[topic] + 1
        topics.add_partitions(self._rig, topic, count)
        self._partitions[topic] = count
        return f"{topic} to {count}"

    def _restart(self, dice: random.Random) -> str:
        healed = "" if self._blocked is None else self._heal()
        epoch = new_leader_epoch(self._rig, *self._places()[0])
        return f"{healed} leader epoch {epoch}"

    # --------------------------------------------------------------------------------------------------------- reading

    def _read(self, dice: random.Random) -> str:
        return self._check(dice)

    def _read_faulty(self, dice: random.Random) -> str:
        return self._check(dice, faulty=True)

    def _check(self, dice: random.Random, *, faulty: bool = False, while_card: str | None = None) -> str:
        topic = dice.choice(list(self._partitions))
        every = list(range(self._partitions[topic]))
        chosen = every if dice.random() < 0.4 else [dice.choice(every)]
        times = self._times(topic, dice)
        meanwhile = None if while_card is None else lambda: self._meanwhile(while_card, dice)
        if self._blocked is not None and self._blocked[0] == topic:
            # The broker cannot read the tier there either. Only the records on its own disk can be read.
            place = self._blocked
            floor = topics.offsets(self._rig, *place).latest_tiered + 1
            intent = draw(dice, faulty=faulty, kinds=("offset",))
            outcome = check_read(
                self._rig, topic, [place[1]], intent, times, no_earlier={place: floor}, meanwhile=meanwhile
            )
            self.counts["reads while uploads fail"] += 1
        else:
            intent = draw(dice, faulty=faulty)
            outcome = check_read(self._rig, topic, chosen, intent, times, meanwhile=meanwhile)
        return self._count(outcome)

    def _read_while(self, dice: random.Random) -> str:
        return self._check(dice, while_card=dice.choice(("produce", "begin", "continue", "commit", "abort")))

    def _meanwhile(self, card: str, dice: random.Random) -> None:
        step: Callable[[random.Random], str] = getattr(self, f"_{card}")
        told = step(dice)
        self.counts["writes during a read"] += 1
        self.log[-1] += f" [meanwhile {card} {told}]"

    def _read_outside(self, dice: random.Random) -> str:
        place = self._place(dice, self._blocked)
        return check_outside(self._rig, place, dice.choice(ISOLATIONS))

    def _cat(self, dice: random.Random) -> str:
        place = self._place(dice, self._blocked)
        outcome = check_cat(self._rig, place, dice.choice(ISOLATIONS), dice, self._times(place[0], dice))
        self.counts["records of cat"] += outcome.records
        return outcome.asked

    def _count(self, outcome: Outcome) -> str:
        report = outcome.report
        self.counts["records from the broker"] += report.broker_records
        self.counts["records from the store"] += outcome.records - report.broker_records
        self.counts["injected faults"] += outcome.injected
        for name, reasons in (
            ("fallback", report.fallbacks),
            ("reread", report.rereads),
            ("scan", report.scans),
            ("retry", report.retries),
        ):
            self.counts.update({f"{name} {reason}": count for reason, count in reasons.items()})
        return f"{outcome.records} records, {report.broker_records} of the broker: {outcome.asked}"

    def _finish(self, number: int) -> None:
        """End all transactions, tier everything, and read each partition completely, only from the store."""
        if self._blocked is not None:
            self._heal()
        for transaction in self._transactions.numbers:
            self._transactions.end(transaction, "abort")
        for topic, count in self._partitions.items():
            topics.set_config(self._rig, topic, local_retention_ms=1)
            topics.wait_tiered(self._rig, topic, range(count))
            for isolation in ISOLATIONS:
                self._say(number, "all of it")
                outcome = check_read(self._rig, topic, range(count), whole(isolation), PRODUCED_TIMES)
                self.log[-1] += f" {self._count(outcome)}"
                assert outcome.report.broker_records == 0, outcome

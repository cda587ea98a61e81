"""Threads that share a consumer: a call waits for the call of another thread, and never sees half a change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from tests.contract.kinds import Consumers
from tests.contract.material import TIMEOUT_S, Material

CALLS: dict[str, Callable[[Consumer, Material], object]] = {
    "position": lambda consumer, material: consumer.position([material.at()]),
    "seek": lambda consumer, material: consumer.seek(material.at(5)),
    "pause": lambda consumer, material: consumer.pause([material.at()]),
    "commit": lambda consumer, material: consumer.commit(asynchronous=True),
    "unassign": lambda consumer, material: consumer.unassign(),
}


def test_records_and_positions_from_several_threads(consumers: Consumers, material: Material) -> None:
    """One reads, others ask, pause, resume and commit all the while: every record comes once and in order."""
    consumer = consumers()
    consumer.assign([material.at(0)])
    over = threading.Event()
    failures: list[BaseException] = []
    seen: list[int] = []

    def meddle(call: Callable[[], object]) -> None:
        try:
            while not over.wait(0.002):
                call()
        except BaseException as error:
            failures.append(error)

    def pause_and_resume() -> None:
        consumer.pause([material.at()])
        consumer.resume([material.at()])

    def ask() -> None:
        (found,) = consumer.position([material.at()])
        seen.append(found.offset)

    threads = [
        threading.Thread(target=meddle, args=(call,))
        for call in (pause_and_resume, ask, lambda: consumer.commit(offsets=[material.at(1)], asynchronous=True))
    ]
    for thread in threads:
        thread.start()
    offsets: list[int | None] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(offsets) < material.end and time.monotonic() < deadline:
        offsets += [message.offset() for message in consumer.consume(3, 0.02)]
    over.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert failures == []
    assert offsets == list(range(material.end))
    known = [offset for offset in seen if offset >= 0]
    assert known == sorted(known)


@pytest.mark.parametrize("name", CALLS)
def test_a_callback_may_come_again(consumers: Consumers, material: Material, name: str) -> None:
    """It is inside already."""
    called: list[str] = []

    def on_assign(consumer: Consumer, partitions: object) -> None:
        consumer.assign([material.at(0)])
        CALLS[name](consumer, material)
        called.append(name)

    consumer = consumers()
    consumer.subscribe([material.topic], on_assign=on_assign)
    deadline = time.monotonic() + TIMEOUT_S
    while not called and time.monotonic() < deadline:
        consumer.poll(0.1)
    assert called == [name]

"""The circuit: how long a storage that failed is left alone."""

from __future__ import annotations

from remote_fetch.errors import CorruptSegment, SegmentNotFound, StorageDenied
from remote_fetch.session.circuit import Circuit, is_storage_failure


def test_pauses_double_up_to_a_minute_and_begin_anew_after_a_success() -> None:
    circuit = Circuit()
    pauses_s = []
    for _ in range(8):
        circuit = circuit.failed("auth", 1.0)
        pauses_s.append(circuit.retry_at_s - 1.0)
    assert pauses_s == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert circuit.worked().failed("auth", 0).retry_at_s == 1.0


def test_the_first_pause_can_be_chosen_and_outlasts_a_success() -> None:
    circuit = Circuit(first_pause_s=0.2).failed("throttled", 0).failed("throttled", 0)
    assert (circuit.retry_at_s, circuit.reason) == (0.4, "throttled")
    assert circuit.worked().failed("throttled", 0).retry_at_s == 0.2


def test_it_is_open_until_the_pause_is_over() -> None:
    circuit = Circuit().failed("auth", 0)
    assert not Circuit().is_open(0)
    assert circuit.is_open(0.999)
    assert not circuit.is_open(1.0)


def test_what_one_object_is_to_blame_for_opens_no_circuit() -> None:
    assert is_storage_failure(StorageDenied("no"))
    assert not is_storage_failure(StorageDenied("archived", is_of_object=True))
    assert not is_storage_failure(CorruptSegment("no batch"))
    assert not is_storage_failure(SegmentNotFound("404"))

"""The records in flight of a share partition: acquisition, acknowledgement, locks, start offset. KIP-932."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinators.share.acknowledgement import AcknowledgementBatch, Refusal, check_form
from ottla.coordinators.share.acquisition import AcquiredRange, Acquisition, OffsetRange
from ottla.coordinators.share.limits import AcquireMode, ShareLimits
from ottla.coordinators.share.partition import SharePartition, StateWrite, StoredState
from ottla.coordinators.share.state_batches import StateBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
LOCK_MS = 30_000


class Driver:
    """A share partition on a log whose record batches have ten records each."""

    def __init__(self, stored: StoredState | None = None, *, end: int = 1_000, **limits: int | bool) -> None:
        self.share = SharePartition(stored or StoredState(0, 0), ShareLimits(**limits))  # type: ignore[arg-type]
        self.end = end
        self.now_ms = 0

    def fetched(self, offset: int) -> list[OffsetRange]:
        return [OffsetRange(base, base + 9) for base in range(offset - offset % 10, self.end, 10)]

    def acquire(
        self,
        member: str = "m",
        most: int = 10,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        aborted: Sequence[OffsetRange] = (),
    ) -> list[tuple[int, int, int]]:
        offset = self.share.next_fetch_offset()
        request = Acquisition(member, most, batch_size, mode)
        acquired = self.share.acquire(request, offset, self.fetched(offset), self.now_ms, aborted)
        self.share.validate()
        assert all(isinstance(item, AcquiredRange) for item in acquired)
        return [(item.first, item.last, item.delivery_count) for item in acquired]

    def send(self, member: str, *batches: tuple[int, int, Sequence[int] | int]) -> StateWrite | Refusal | None:
        result = self.share.acknowledge(
            member,
            [AcknowledgementBatch(first, last, (t,) if isinstance(t, int) else t) for first, last, t in batches],
            self.now_ms,
        )
        self.share.validate()
        return result

    def acknowledge(
        self, member: str, *batches: tuple[int, int, Sequence[int] | int], stored: bool = True
    ) -> StateWrite:
        write = self.send(member, *batches)
        assert isinstance(write, StateWrite), write
        self.finish(write, stored)
        return write

    def finish(self, write: StateWrite, stored: bool = True) -> None:
        self.share.written(write.id, succeeded=stored, now_ms=self.now_ms)
        self.share.validate()

    def refused(self, member: str, *batches: tuple[int, int, Sequence[int] | int]) -> ErrorCode:
        before = repr(self.share)
        result = self.send(member, *batches)
        assert isinstance(result, Refusal), result
        assert repr(self.share).count("pending") == before.count("pending")
        return result.error

    def expire(self, stored: bool = True) -> StateWrite | None:
        write = self.share.expire(self.now_ms)
        self.share.validate()
        if write is not None:
            self.finish(write, stored)
        return write


# -- acquisition ---------------------------------------------------------------------------------------------------


def test_acquisition_ends_with_a_whole_batch() -> None:
    driver = Driver()
    assert driver.acquire(most=15) == [(0, 19, 1)]
    assert driver.share.next_fetch_offset() == 20


def test_large_acquisition_is_cut_where_record_batches_begin() -> None:
    assert Driver().acquire(most=60, batch_size=25) == [(0, 29, 1), (30, 59, 1)]


def test_two_members_never_acquire_the_same_record() -> None:
    driver = Driver()
    assert driver.acquire("a") == [(0, 9, 1)]
    assert driver.acquire("b") == [(10, 19, 1)]


def test_record_limit_is_exact_and_leaves_the_rest_of_the_batch_available() -> None:
    driver = Driver()
    assert driver.acquire("a", most=3, mode=AcquireMode.RECORD_LIMIT) == [(0, 2, 1)]
    assert driver.share.next_fetch_offset() == 3
    assert driver.acquire("b", most=4, mode=AcquireMode.RECORD_LIMIT) == [(3, 6, 1)]
    assert driver.acquire("c", most=100) == [(7, 9, 1), (10, 109, 1)]


def test_full_window_blocks_new_records_but_not_released_ones() -> None:
    driver = Driver(max_record_locks=20)
    assert driver.acquire(most=100) == [(0, 19, 1)]
    assert not driver.share.can_acquire()
    assert driver.acquire(most=100) == []
    driver.acknowledge("m", (0, 4, RELEASE))
    assert driver.share.can_acquire()
    assert driver.acquire("n", most=100) == [(0, 4, 2)]
    driver.acknowledge("n", (0, 4, ACCEPT))
    assert driver.share.in_flight_count == 15
    assert driver.acquire("n", most=100) == [(20, 29, 1)]


def test_fetch_that_ends_inside_a_batch_acquires_up_to_there() -> None:
    driver = Driver()
    driver.acquire(most=10)
    driver.acknowledge("m", (0, 9, RELEASE))
    acquired = driver.share.acquire(Acquisition("n", 100, 500), 0, [OffsetRange(0, 4)], 0)
    assert acquired == [(0, 4, 2)]
    driver.share.validate()


def test_offsets_without_records_are_archived() -> None:
    """The log was compacted after the records were released."""
    driver = Driver()
    driver.acquire(most=20)
    driver.acknowledge("m", (0, 19, RELEASE))
    acquired = driver.share.acquire(Acquisition("n", 100, 500), 0, [OffsetRange(12, 19)], 0)
    assert acquired == [(12, 19, 2)]
    assert driver.share.start_offset == 12
    driver.share.validate()


def test_records_of_aborted_transactions_are_archived() -> None:
    driver = Driver()
    assert driver.acquire(most=40, aborted=[OffsetRange(0, 9), OffsetRange(20, 29)]) == [(10, 19, 1), (30, 39, 1)]
    assert driver.share.start_offset == 10
    assert driver.refused("m", (20, 29, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    driver.acknowledge("m", (10, 19, ACCEPT))
    assert driver.share.start_offset == 30


def test_record_that_fails_repeatedly_is_delivered_alone_at_last() -> None:
    driver = Driver(max_delivery_count=5)
    taken = []
    for _ in range(5):
        acquired = driver.acquire(most=8, mode=AcquireMode.RECORD_LIMIT)
        taken.append(acquired)
        driver.acknowledge("m", (acquired[0][0], acquired[-1][1], RELEASE))
    # From the third delivery on Kafka halves what is delivered together. The last delivery is of one record.
    assert taken[:3] == [[(0, 7, 1)], [(0, 7, 2)], [(0, 7, 3)]]
    assert taken[3][0][0] == 0
    assert 1 < taken[3][0][1] + 1 <= 5
    assert taken[4] == [(0, 0, 5)]
    assert driver.share.start_offset == 1


def test_released_records_are_delivered_and_stored_as_by_kafka() -> None:
    """A stock Kafka 4.3 stored this state for ten records that its console consumer released repeatedly."""
    driver = Driver(StoredState(2, 60), end=70)
    stored = []
    acquired = driver.acquire(most=500)
    while acquired and len(stored) < 20:
        write = driver.send("m", *((first, last, RELEASE) for first, last, _ in acquired))
        assert isinstance(write, StateWrite)
        stored += [(write.start_offset, write.delivery_complete_count, tuple(batch)) for batch in write.batches]
        # The fetch that carries the acknowledgements acquires records before they are stored.
        acquired = driver.acquire(most=500)
        driver.finish(write)
        acquired = acquired or driver.acquire(most=500)
    assert stored[:5] == [
        (60, 0, (60, 69, AVAILABLE, 1)),
        (60, 0, (60, 69, AVAILABLE, 2)),
        (60, 0, (60, 69, AVAILABLE, 3)),
        (60, 0, (60, 64, AVAILABLE, 4)),
        (60, 0, (65, 69, AVAILABLE, 4)),
    ]
    assert stored[5:] == [(offset, 1, (offset, offset, ARCHIVED, 5)) for offset in range(60, 70)]


# -- acknowledgement -----------------------------------------------------------------------------------------------


def test_acknowledged_records_move_the_start_offset_when_they_are_stored() -> None:
    driver = Driver()
    driver.acquire(most=20)
    write = driver.send("m", (0, 9, ACCEPT))
    assert isinstance(write, StateWrite)
    assert (write.start_offset, write.delivery_complete_count) == (0, 10)
    assert write.batches == (StateBatch(0, 9, ACKNOWLEDGED, 1),)
    assert driver.share.start_offset == 0
    driver.finish(write)
    assert (driver.share.start_offset, driver.share.end_offset) == (10, 19)


def test_each_type_has_its_state() -> None:
    driver = Driver()
    driver.acquire(most=10)
    write = driver.acknowledge("m", (0, 4, [GAP, ACCEPT, RELEASE, REJECT, REJECT]))
    assert write.batches == (
        StateBatch(0, 0, ARCHIVED, 1),
        StateBatch(1, 1, ACKNOWLEDGED, 1),
        StateBatch(2, 2, AVAILABLE, 1),
        StateBatch(3, 4, ARCHIVED, 1),
    )
    assert driver.share.start_offset == 2
    assert driver.acquire("n", most=1) == [(2, 2, 2)]


def test_only_the_member_that_acquired_records_can_acknowledge_them() -> None:
    driver = Driver()
    driver.acquire("a")
    driver.acquire("b")
    assert driver.refused("b", (0, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert driver.refused("a", (5, 14, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert driver.refused("forged", (10, 19, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    driver.acknowledge("a", (0, 9, ACCEPT))


def test_records_that_were_never_delivered_cannot_be_acknowledged() -> None:
    driver = Driver(StoredState(0, 100))
    assert driver.refused("m", (110, 119, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE, "nothing is in flight"
    driver.acquire("m", most=10)
    assert driver.refused("m", (100, 110, ACCEPT)) is ErrorCode.INVALID_REQUEST
    assert driver.refused("m", (110, 119, ACCEPT)) is ErrorCode.INVALID_REQUEST
    assert driver.refused("m", (0, 2**62, ACCEPT)) is ErrorCode.INVALID_REQUEST
    assert driver.send("m", (0, 99, ACCEPT)) is None
    driver.acknowledge("m", (50, 109, ACCEPT))


def test_record_is_acknowledged_once() -> None:
    driver = Driver()
    driver.acquire(most=20)
    assert driver.refused("m", (0, 9, ACCEPT), (9, 12, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    write = driver.send("m", (0, 9, ACCEPT))
    assert driver.refused("m", (5, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert isinstance(write, StateWrite)
    driver.finish(write)
    assert driver.send("m", (5, 9, RELEASE)) is None
    driver.acknowledge("m", (15, 19, ACCEPT))
    for member in ("m", ""):
        assert driver.refused(member, (15, 19, RELEASE)) is ErrorCode.INVALID_RECORD_STATE


def test_request_changes_all_its_records_or_none() -> None:
    driver = Driver()
    driver.acquire("a")
    driver.acquire("b")
    assert driver.refused("a", (0, 3, ACCEPT), (4, 4, RELEASE), (15, 16, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert driver.acquire("c") == [(20, 29, 1)]
    driver.acknowledge("a", (0, 9, ACCEPT))


def test_failed_write_returns_the_records_to_their_member() -> None:
    driver = Driver()
    driver.acquire("a")
    driver.acknowledge("a", (0, 9, ACCEPT), stored=False)
    assert driver.share.start_offset == 0
    assert driver.acquire("b") == [(10, 19, 1)]
    driver.acknowledge("a", (0, 9, ACCEPT))
    assert driver.share.start_offset == 10


def test_failed_write_after_the_lock_releases_the_records() -> None:
    driver = Driver()
    driver.acquire("a")
    write = driver.send("a", (0, 9, ACCEPT))
    driver.now_ms = LOCK_MS
    assert driver.share.expire(driver.now_ms) is None
    assert isinstance(write, StateWrite)
    driver.finish(write, stored=False)
    assert driver.acquire("b") == [(0, 9, 2)]


def test_records_of_a_pending_release_cannot_be_acquired() -> None:
    driver = Driver()
    driver.acquire("a")
    write = driver.send("a", (0, 9, RELEASE))
    assert driver.acquire("b") == [(10, 19, 1)]
    assert driver.share.acquire(Acquisition("b", 10, 500), 0, [OffsetRange(0, 19)], 0) == []
    assert isinstance(write, StateWrite)
    driver.finish(write)
    assert driver.acquire("b") == [(0, 9, 2)]


def test_start_offset_waits_for_each_acknowledgement_below_it() -> None:
    driver = Driver()
    driver.acquire("a")
    driver.acquire("b")
    first, second = driver.send("a", (0, 9, ACCEPT)), driver.send("b", (10, 19, ACCEPT))
    assert isinstance(first, StateWrite)
    assert isinstance(second, StateWrite)
    driver.finish(second)
    assert driver.share.start_offset == 0
    driver.finish(first, stored=False)
    assert driver.share.start_offset == 0
    driver.acknowledge("a", (0, 9, ACCEPT))
    assert driver.share.start_offset == 20


def test_gap_between_batches_does_not_block_the_start_offset() -> None:
    driver = Driver()
    driver.share.acquire(Acquisition("m", 100, 5), 0, [OffsetRange(0, 4), OffsetRange(20, 24)], 0)
    driver.acknowledge("m", (0, 24, [ACCEPT] * 5 + [GAP] * 15 + [ACCEPT] * 5))
    assert driver.share.start_offset == 25


@pytest.mark.parametrize(
    ("batches", "renews", "is_legal"),
    [
        ([(0, 9, (1,)), (10, 10, (2,))], False, True),
        ([(0, 2, (0, 1, 3))], False, True),
        ([(0, 2, (4,))], True, True),
        ([(0, 2, (4,))], False, False),
        ([(0, 2, (5,))], True, False),
        ([(0, 2, (-1,))], True, False),
        ([(0, 2, ())], False, False),
        ([(0, 2, (1, 1))], False, False),
        ([(3, 2, (1,))], False, False),
        ([(-5, -1, (1,))], False, False),
        ([(0, 9, (1,)), (8, 12, (1,))], False, False),
        ([(20, 29, (1,)), (0, 9, (1,))], False, False),
    ],
)
def test_form_of_acknowledgements(
    batches: list[tuple[int, int, tuple[int, ...]]], renews: bool, is_legal: bool
) -> None:
    refusal = check_form([AcknowledgementBatch(*batch) for batch in batches], renews=renews)
    assert (refusal is None) is is_legal
    assert refusal is None or refusal.error is ErrorCode.INVALID_REQUEST


# -- locks ---------------------------------------------------------------------------------------------------------


def test_elapsed_lock_releases_the_records() -> None:
    driver = Driver()
    driver.acquire("a")
    assert driver.share.next_deadline_ms() == LOCK_MS
    driver.now_ms = LOCK_MS - 1
    assert driver.expire() is None
    driver.now_ms = LOCK_MS
    write = driver.expire()
    assert write is not None
    assert write.batches == (StateBatch(0, 9, AVAILABLE, 1),)
    assert driver.acquire("b") == [(0, 9, 2)]
    assert driver.refused("a", (0, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE


def test_renewal_extends_the_lock_and_stores_nothing() -> None:
    driver = Driver()
    driver.acquire("a")
    driver.now_ms = 20_000
    assert driver.send("a", (0, 4, RENEW)) is None
    driver.now_ms = LOCK_MS
    assert driver.expire() is not None
    assert driver.acquire("b", most=5) == [(5, 9, 2)]
    driver.now_ms = 20_000 + LOCK_MS
    assert driver.expire() is not None
    assert driver.acquire("c", most=5) == [(0, 4, 2)]


def test_renewal_can_be_forbidden() -> None:
    driver = Driver(is_renewal_enabled=False)
    driver.acquire("a")
    assert driver.refused("a", (0, 9, RENEW)) is ErrorCode.INVALID_RECORD_STATE


def test_record_that_was_delivered_too_often_is_archived() -> None:
    driver = Driver(max_delivery_count=2)
    driver.acquire("a")
    driver.acknowledge("a", (0, 9, RELEASE))
    assert driver.acquire("a") == [(0, 9, 2)]
    driver.now_ms = LOCK_MS
    write = driver.expire()
    assert write is not None
    assert write.batches == (StateBatch(0, 9, ARCHIVED, 2),)
    assert driver.share.start_offset == 10


def test_records_of_a_member_that_leaves_are_released() -> None:
    driver = Driver()
    driver.acquire("a")
    driver.acquire("b")
    write = driver.share.release("a")
    assert write is not None
    assert write.batches == (StateBatch(0, 9, AVAILABLE, 1),)
    driver.finish(write)
    assert driver.share.release("a") is None
    assert driver.acquire("c") == [(0, 9, 2)]
    driver.acknowledge("b", (10, 19, ACCEPT))


# -- start offset and stored state ---------------------------------------------------------------------------------


def test_deleted_records_leave_the_window() -> None:
    driver = Driver()
    driver.acquire("a", most=20)
    write = driver.send("a", (0, 9, ACCEPT))
    driver.share.advance_log_start(15)
    driver.share.validate()
    assert (driver.share.start_offset, driver.share.end_offset) == (15, 19)
    assert isinstance(write, StateWrite)
    driver.finish(write, stored=False)
    driver.acknowledge("a", (10, 19, ACCEPT))
    assert driver.share.start_offset == 20
    driver.share.advance_log_start(500)
    driver.share.validate()
    assert driver.share.next_fetch_offset() == 500


def test_stored_state_is_restored() -> None:
    stored = StoredState(7, 10, [StateBatch(10, 11, ACKNOWLEDGED, 1), StateBatch(15, 19, AVAILABLE, 3)])
    driver = Driver(stored)
    assert (driver.share.start_offset, driver.share.end_offset, driver.share.state_epoch) == (12, 19, 7)
    # The offsets without stored state were never acknowledged.
    assert driver.acquire("a", most=3, mode=AcquireMode.RECORD_LIMIT) == [(12, 14, 1)]
    assert driver.acquire("a", most=100)[0] == (15, 16, 4)


@pytest.mark.parametrize(
    "batches",
    [
        [StateBatch(5, 12, ACKNOWLEDGED, 1)],
        [StateBatch(14, 12, ACKNOWLEDGED, 1)],
        [StateBatch(10, 12, ACKNOWLEDGED, 1), StateBatch(12, 13, ACKNOWLEDGED, 1)],
        [StateBatch(10, 12, 9, 1)],
    ],
)
def test_contradictory_stored_state_is_an_error(batches: list[StateBatch]) -> None:
    with pytest.raises(ValueError):
        SharePartition(StoredState(0, 10, batches), ShareLimits())

"""One suite for the survey of a segment, compiled and from its source."""

import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.kernels import is_compiled
from ottla.records import BatchProducer, _survey, encode_batch, encode_end_transaction_marker, patch, read_header
from ottla.records.batch import TRANSACTIONAL
from ottla.records.survey import CRC, FRAME, LOOK, MORE, OFFSET
from tests.uncompiled import record_kernels

from .samples import with_field

UNCOMPILED = record_kernels()["_survey"]


@pytest.fixture(params=["compiled", "uncompiled"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "uncompiled":
        return UNCOMPILED
    if not is_compiled("ottla.records._survey"):
        pytest.skip("the survey is not compiled here")
    return _survey


def batch(offset: int, count: int = 1, *, size: int = 30, epoch: int = 0, timestamp: int = 1000, **more: Any) -> bytes:
    made = encode_batch([(timestamp, None, b"v" * size, [])] * count, **more)
    patch(made, 0, offset, epoch)
    return bytes(made)


def survey_of(module: ModuleType, *, end_offset: int = 1 << 62, known_to: int = 0) -> Any:
    return module.Survey(0, 0, 0, end_offset, known_to, 0)


def test_survey_checks_complete_batches_and_reports_needed_bytes(module: ModuleType) -> None:
    log = batch(0, 3) + batch(3) + batch(4, 2, size=5000)
    survey = survey_of(module)
    assert survey.go_on(log[:-1], 0) == MORE
    assert (survey.good, survey.expected) == (len(batch(0, 3)) + len(batch(3)), 4)
    assert survey.needed == len(batch(4, 2, size=5000))
    assert survey.go_on(log[survey.good :], survey.good) == MORE
    assert (survey.good, survey.expected, survey.needed) == (len(log), 6, 61)


@pytest.mark.parametrize(
    ("corrupted", "why"),
    [
        (with_field(batch(3), 16, ">b", 1), FRAME),
        (with_field(batch(3), 8, ">i", 48), FRAME),
        (batch(3)[:-1] + b"x", CRC),
        (batch(3, size=9000)[:-1] + b"x", CRC),
        (batch(2), OFFSET),
        (batch(9, 2), OFFSET),
        (with_field(batch(3), 23, ">i", -1), OFFSET),
    ],
    ids=["magic", "size", "crc", "crc of a large one", "back", "beyond the end", "ends before it begins"],
)
def test_survey_stops_before_a_corrupt_batch_with_the_reason(module: ModuleType, corrupted: bytes, why: int) -> None:
    survey = survey_of(module, end_offset=10)
    assert survey.go_on(batch(0, 3) + bytes(corrupted) + batch(4), 0) == why
    assert (survey.good, survey.expected) == (len(batch(0, 3)), 3)


def test_survey_accepts_gaps_between_offsets(module: ModuleType) -> None:
    survey = survey_of(module)
    assert survey.go_on(batch(0) + batch(7, 2) + batch(20), 0) == MORE
    assert survey.expected == 21
    assert survey_of(module).go_on(batch(7, 2) + batch(8), 0) == OFFSET


def test_survey_stops_at_new_epochs_and_transactions(module: ModuleType) -> None:
    newer = batch(1, epoch=4)
    transactional = batch(2, epoch=4, producer=BatchProducer(7, 0, 0), attributes=TRANSACTIONAL)
    marker = encode_end_transaction_marker(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1000
    )
    patch(marker, 0, 3, 4)
    log = batch(0) + newer + transactional + bytes(marker) + batch(4, epoch=4)
    survey = survey_of(module)
    looked = []
    while survey.go_on(log, 0) == LOOK:
        header = read_header(log, survey.good)
        looked.append(header.base_offset)
        survey.epoch = max(survey.epoch, header.partition_leader_epoch)
        survey.looked_at = survey.good
    assert looked == [1, 2, 3]
    assert (survey.good, survey.expected) == (len(log), 5)


def test_survey_does_not_stop_at_known_transactions(module: ModuleType) -> None:
    survey = survey_of(module, known_to=1)
    batches = [batch(n, producer=BatchProducer(7, 0, n), attributes=TRANSACTIONAL) for n in range(2)]
    assert survey.go_on(b"".join(batches), 0) == LOOK
    assert survey.expected == 1


def test_survey_collects_last_five_batches_of_each_producer(module: ModuleType) -> None:
    rows = [(0, 9), (1, 8), *((offset, 9) for offset in range(2, 8)), (8, -1), (9, 8)]
    log, places = b"", []
    for offset, producer in rows:
        places.append(len(log))
        log += batch(offset, producer=BatchProducer(producer, 0, offset))
    survey = survey_of(module)
    assert survey.go_on(log, 0) == MORE
    assert sorted(survey.take_producers()) == [places[1], *places[3:8], places[9]]
    assert survey.take_producers() == []


def test_survey_adds_index_entries_per_interval_with_ascending_times(module: ModuleType) -> None:
    log = b"".join(batch(offset, size=1000, timestamp=time) for offset, time in enumerate([5, 9, 7, 7, 9, 12, 3]))
    size = len(batch(0, size=1000))
    survey = survey_of(module)
    survey.index_interval = size
    assert survey.go_on(log, 0) == MORE
    offsets, positions, timestamps, time_offsets = survey.take_entries()
    assert list(offsets) == [2, 4, 6]
    assert list(positions) == [2 * size, 4 * size, 6 * size]
    assert list(zip(timestamps, time_offsets, strict=True)) == [(9, 1), (12, 5)]
    assert (survey.first_timestamp, survey.max_timestamp, survey.max_offset) == (5, 12, 5)
    assert all(len(column) == 0 for column in survey.take_entries())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_both_surveys_agree_on_valid_and_corrupt_segments(seed: int) -> None:
    if not is_compiled("ottla.records._survey"):
        pytest.skip("the survey is not compiled here")
    chance = random.Random(seed)
    log, offset = bytearray(), 0
    for _ in range(chance.randrange(1, 60)):
        producer = chance.choice([-1, -1, 5, 6, 7])
        made = batch(
            offset,
            chance.randrange(1, 4),
            size=chance.choice([0, 10, 700, 3000]),
            epoch=chance.choice([0, 0, 0, 1]),
            timestamp=chance.randrange(100),
            producer=BatchProducer(producer),
            attributes=chance.choice([0, 0, 0, TRANSACTIONAL]),
        )
        offset = read_header(made).next_offset
        log += made
    for _ in range(chance.choice([0, 0, 1])):
        log[chance.randrange(len(log))] ^= 1 << chance.randrange(8)
    step = chance.randrange(100, 9000)
    found = [_finds(module, bytes(log), step) for module in (_survey, UNCOMPILED)]
    assert found[0] == found[1]


def _finds(module: ModuleType, log: bytes, step: int) -> list[object]:
    survey = module.Survey(0, 0, 0, 1 << 62, 10, 0)
    survey.index_interval = 300
    found: list[object] = []
    why = MORE
    while why in {MORE, LOOK} and survey.good < len(log):
        place = survey.good
        data = log[place : place + step]
        why = survey.go_on(data, place)
        found += [why, survey.good, survey.expected, survey.needed, sorted(survey.take_producers())]
        if why == LOOK:
            survey.looked_at = survey.good
        elif survey.good == place:
            if why != MORE or len(data) < step:
                break
            step = max(survey.needed, step + 1)
    found += [list(column) for column in survey.take_entries()]
    return [*found, survey.first_timestamp, survey.max_timestamp, survey.max_offset, survey.unindexed, survey.last_time]

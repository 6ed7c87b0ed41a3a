"""A follower: truncation by epoch, and what it does with each answer of its leader."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode
from ottla.replication.follower import (
    Action,
    EpochEnd,
    FetchAnswer,
    Position,
    Step,
    on_fetched,
    on_leader_end,
    on_leader_start,
    position_of,
    truncation_offset,
)
from tests.unit.replication.support import ModelLog


@pytest.mark.parametrize(
    ("own", "leader", "offset"),
    [
        ([0, 0, 1, 1, 1], EpochEnd(1, 3), 3),
        ([0, 0, 1, 1], EpochEnd(1, 9), 4),
        # The follower has records of epoch 2, the leader's last epoch before 3 is 1.
        ([0, 0, 1, 2, 2], EpochEnd(1, 5), 3),
        # The follower lacks epoch 1: compare again from the end of epoch 0.
        ([0, 0, 2, 2], EpochEnd(1, 4), 2),
        ([2, 2], EpochEnd(1, 4), 0),
        ([0, 0], EpochEnd(-1, 1), 1),
        ([0, 0], EpochEnd(5, 1), 1),
        ([0, 0], EpochEnd(-1, -1), 2),
        ([], EpochEnd(3, 0), 0),
    ],
)
def test_truncation_offset(own: list[int], leader: EpochEnd, offset: int) -> None:
    assert truncation_offset(leader, ModelLog(own)) == offset


def test_follower_fetches_at_its_log_end_and_names_the_epoch_of_its_last_record() -> None:
    assert position_of(ModelLog([0, 0, 3]), 7) == Position(3, 3, 7, 0)
    assert position_of(ModelLog(), 7) == Position(0, -1, 7, 0)


@pytest.mark.parametrize(
    ("answer", "step"),
    [
        (FetchAnswer(high_watermark=3), Step(Action.APPEND)),
        (FetchAnswer(diverging=EpochEnd(0, 1)), Step(Action.TRUNCATE, 1)),
        (FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), Step(Action.LOOK_UP)),
        (FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH), Step(Action.WAIT)),
        (FetchAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH), Step(Action.BACK_OFF)),
        (FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER), Step(Action.BACK_OFF)),
        (FetchAnswer(ErrorCode.KAFKA_STORAGE_ERROR), Step(Action.BACK_OFF)),
    ],
)
def test_step_after_an_answer(answer: FetchAnswer, step: Step) -> None:
    log = ModelLog([0, 0])
    position = position_of(log, 1)
    assert on_fetched(position, answer, log, 1) == step


@pytest.mark.parametrize("answer", [FetchAnswer(high_watermark=2), FetchAnswer(diverging=EpochEnd(0, 1))])
def test_answer_to_another_position_or_epoch_changes_nothing(answer: FetchAnswer) -> None:
    log = ModelLog([0, 0])
    for requested in (Position(1, 0, 1, 0), Position(2, 0, 0, 0), Position(2, -1, 1, 0)):
        assert on_fetched(requested, answer, log, 1).action is Action.NOTHING


def test_answer_is_used_although_the_log_start_moved() -> None:
    log = ModelLog([0, 0])
    requested = position_of(log, 1)
    log.log_start_offset, log.records = 1, log.records[1:]
    assert on_fetched(requested, FetchAnswer(), log, 1).action is Action.APPEND


def test_log_longer_than_the_leaders_is_truncated_to_its_end() -> None:
    assert on_leader_end(1, ModelLog([0, 0])) == Step(Action.TRUNCATE, 1)
    assert on_leader_end(2, ModelLog([0, 0])).action is Action.LOOK_UP


def test_log_that_ends_before_the_leaders_start_starts_over_there() -> None:
    assert on_leader_start(5, ModelLog([0, 0])) == Step(Action.RESTART, 5)
    assert on_leader_start(2, ModelLog([0, 0])).action is Action.NOTHING

"""Requests of share groups to the share coordinator, and the outcomes that are reported to their shards. KIP-932."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.work import Worker
from ottla.coordination.shares.coordinator import MOST_AT_ONCE
from ottla.coordination.shares.effects import ShareEffects
from ottla.coordinators.group.share.events import (
    DeleteShares,
    ForgetShares,
    InitializeShares,
    ReleaseRecords,
    ResetShares,
)
from ottla.coordinators.share.events import UNCHOSEN_OFFSET, DeleteState, InitializeState, Result, ShareKey

from .harness import ManualLoop

A, B = b"a" * 16, b"b" * 16
INITIALIZE = InitializeShares("g", 3, {A: frozenset({0, 1}), B: frozenset({0})})
DELETE = DeleteShares("g", {A: frozenset({0, 1})})
RESET = ResetShares("g", 4, {A: {0: 10, 1: -1}})
FORGET = ForgetShares("g", {A: frozenset({0}), B: frozenset({0})})
BROKEN = ErrorCode.UNKNOWN_SERVER_ERROR


class Storage:
    """A share coordinator that answers when the test says so; it is also the shard that gets the outcomes."""

    def __init__(self) -> None:
        self.prepared: Completion[None] = Completion()
        self.requests: list[InitializeState | DeleteState] = []
        self.answers: list[Completion[Result]] = []
        self.broken = False
        self.outcomes: list[Any] = []
        self.effects = ShareEffects(lambda: self, Worker(ManualLoop()).submit)

    def prepare(self) -> Completion[None]:
        return self.prepared

    def initialize(self, request: InitializeState | DeleteState) -> Completion[Result]:
        if self.broken:
            raise ZeroDivisionError
        self.requests.append(request)
        self.answers.append(Completion())
        return self.answers[-1]

    delete = initialize

    def release_member(self, group_id: str, member_id: str) -> None:
        self.outcomes.append((group_id, member_id))

    def shares_initialized(self, effect: InitializeShares, done: object) -> None:
        self.outcomes.append((effect, done))

    def shares_deleted(self, group_id: str, error: ErrorCode) -> None:
        self.outcomes.append((group_id, error))

    def shares_reset(self, effect: ResetShares, failed: object) -> None:
        self.outcomes.append((effect, failed))

    shares_forgotten = shares_reset

    def execute(self, effect: object, *results: Result) -> None:
        self.effects.execute(effect, lambda outcome: outcome(self, None))  # type: ignore[arg-type, func-returns-value]
        for index, result in enumerate(results):
            self.answers[index].complete(result)


@pytest.fixture
def storage() -> Storage:
    return Storage()


def test_partitions_whose_state_was_created_are_reported(storage: Storage) -> None:
    storage.prepared.complete(None)
    storage.execute(INITIALIZE, Result(), Result(ErrorCode.COORDINATOR_NOT_AVAILABLE), Result())
    assert storage.requests == [
        InitializeState(ShareKey("g", topic, index), 3, UNCHOSEN_OFFSET, keeps_existing=True)
        for topic, index in ((A, 0), (A, 1), (B, 0))
    ]
    assert storage.outcomes == [(INITIALIZE, {A: {0}, B: {0}})]


def test_records_of_a_removed_member_are_released(storage: Storage) -> None:
    storage.execute(ReleaseRecords("g", "m"))
    assert storage.outcomes == [("g", "m")]


def test_no_state_is_created_without_its_topic(storage: Storage) -> None:
    storage.execute(INITIALIZE)
    assert storage.outcomes == []
    storage.prepared.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert storage.requests == []
    assert storage.outcomes == [(INITIALIZE, {})]


def test_first_error_of_a_deletion_is_reported(storage: Storage) -> None:
    storage.execute(DELETE, Result(), Result(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert storage.requests == [DeleteState(ShareKey("g", A, 0)), DeleteState(ShareKey("g", A, 1))]
    assert storage.outcomes == [("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]


def test_deletion_succeeds_if_a_topic_does_not_exist_any_more(storage: Storage) -> None:
    storage.execute(DELETE, Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), Result())
    assert storage.outcomes == [("g", ErrorCode.NONE)]


def test_reset_replaces_the_state_and_reports_what_failed(storage: Storage) -> None:
    storage.execute(RESET)
    storage.prepared.complete(None)
    assert storage.requests == [
        InitializeState(ShareKey("g", A, 0), 4, 10),
        InitializeState(ShareKey("g", A, 1), 4, UNCHOSEN_OFFSET),
    ]
    storage.answers[0].complete(Result(ErrorCode.FENCED_STATE_EPOCH))
    storage.answers[1].complete(Result())
    assert storage.outcomes == [(RESET, {(A, 0): ErrorCode.FENCED_STATE_EPOCH})]


def test_deletion_of_offsets_reports_the_topics_that_failed(storage: Storage) -> None:
    storage.execute(FORGET, Result(ErrorCode.NOT_COORDINATOR), Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert storage.outcomes == [(FORGET, {A: ErrorCode.NOT_COORDINATOR})]


@pytest.mark.parametrize(
    ("effect", "outcome"),
    [
        (INITIALIZE, (INITIALIZE, {})),
        (DELETE, ("g", BROKEN)),
        (RESET, (RESET, {(A, 0): BROKEN, (A, 1): BROKEN})),
        (FORGET, (FORGET, {A: BROKEN, B: BROKEN})),
    ],
)
def test_unhandled_error_has_an_outcome_and_is_logged(
    storage: Storage, effect: object, outcome: object, caplog: pytest.LogCaptureFixture
) -> None:
    storage.prepared.complete(None)
    storage.broken = True
    storage.execute(effect)
    assert storage.outcomes == [outcome]
    assert "ZeroDivisionError" in caplog.text


def test_number_of_requests_without_an_outcome_is_bounded(storage: Storage) -> None:
    storage.prepared.complete(None)
    storage.execute(InitializeShares("g", 1, {A: frozenset(range(1_000))}))
    while len(storage.requests) < 1_000:
        open_requests = [answer for answer in storage.answers if not answer.done]
        assert 0 < len(open_requests) <= MOST_AT_ONCE
        open_requests[0].complete(Result())
    for answer in storage.answers:
        answer.complete(Result())
    ((_, done),) = storage.outcomes
    assert done == {A: frozenset(range(1_000))}

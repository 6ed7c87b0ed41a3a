"""Executes what share groups ask of the node: create, reset and delete share state, release records. KIP-932.

A change of share state has an outcome, which is reported to the shard of the group that returned it, also after an
unhandled error. Nothing is retried here: the next heartbeat of a member retries a creation, and the client the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.common.slices import Slices, result_of
from ottla.coordination.shares.coordinator import submit_all
from ottla.coordinators.group.share.events import (
    DeleteShares,
    ForgetShares,
    InitializeShares,
    ReleaseRecords,
    ResetShares,
)
from ottla.coordinators.share.events import UNCHOSEN_OFFSET, DeleteState, InitializeState, Result, ShareKey

if TYPE_CHECKING:
    from ottla.coordinators.events import Effects, Moment, ParkedEffect
    from ottla.coordinators.group.assignors import Partitions
    from ottla.coordinators.group.shard import GroupShard

logger = logging.getLogger(__name__)

Outcome: TypeAlias = "Callable[[GroupShard, Moment], Effects]"
"""The event that reports the outcome of an effect to the shard that returned it."""
Report: TypeAlias = Callable[[Outcome], None]


class ShareStorage(Protocol):
    """The share state of a node, as group coordinators use it."""

    def prepare(self) -> Completion[None]:
        """Create `__share_group_state`; fails with KafkaError."""
        ...

    def initialize(self, request: InitializeState) -> Completion[Result]:
        """Begin to share a partition; never fails."""
        ...

    def delete(self, request: DeleteState) -> Completion[Result]:
        """Delete the state of a share partition; never fails."""
        ...

    def release_member(self, group_id: str, member_id: str) -> None:
        """Release the records that a removed member has acquired."""
        ...


class ShareEffects:
    """`storage()` returns the node's part, `run` executes sliced work."""

    def __init__(
        self, storage: Callable[[], ShareStorage], run: Callable[[Slices[Outcome]], Completion[Outcome]]
    ) -> None:
        self._storage = storage
        self._run = run

    def execute(self, effect: ParkedEffect, report: Report) -> None:
        """Begin to execute an effect of the group coordinator. Its outcome is reported once, if it has one."""
        match effect:
            case ReleaseRecords():
                self._storage().release_member(effect.group_id, effect.member_id)
                return
            case InitializeShares():
                work, failed = self._initialize(effect), _initialized(effect, ())
            case DeleteShares():
                work, failed = self._delete(effect), _deleted(effect, ErrorCode.UNKNOWN_SERVER_ERROR)
            case ResetShares():
                work, failed = self._reset(effect), _not_reset(effect, ErrorCode.UNKNOWN_SERVER_ERROR)
            case ForgetShares():
                all_failed = dict.fromkeys(effect.partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
                work, failed = self._forget(effect), _forgotten(effect, all_failed)
            case _:
                raise TypeError(f"the group coordinator cannot execute {effect!r}")

        def finished(done: Completion[Outcome]) -> None:
            outcome = failed
            try:
                outcome = done.result()
            except Exception:  # the shard waits for an outcome
                logger.exception("Failed to execute %s", effect)
            report(outcome)

        self._run(work).on_done(finished)

    def _initialize(self, effect: InitializeShares) -> Slices[Outcome]:
        storage = self._storage()
        try:
            yield from result_of(storage.prepare())
        except KafkaError as error:
            logger.warning("Failed to initialize the share partitions of group %s: %s", effect.group_id, error)
            return _initialized(effect, ())
        requests = (
            InitializeState(key, effect.state_epoch, UNCHOSEN_OFFSET, keeps_existing=True)
            for key in _keys(effect.group_id, effect.partitions)
        )
        results = yield from submit_all(requests, storage.initialize)
        _log_failure("initialize", results)
        return _initialized(effect, (key for key, result in results.items() if result.error is ErrorCode.NONE))

    def _delete(self, effect: DeleteShares) -> Slices[Outcome]:
        failed = yield from self._delete_states(effect.group_id, effect.partitions)
        return _deleted(effect, next(iter(failed.values()), ErrorCode.NONE))

    def _forget(self, effect: ForgetShares) -> Slices[Outcome]:
        failed = yield from self._delete_states(effect.group_id, effect.partitions)
        return _forgotten(effect, failed)

    def _delete_states(self, group_id: str, partitions: Partitions) -> Slices[dict[Uuid, ErrorCode]]:
        """Delete share state; returns the last error of each topic that has one."""
        requests = (DeleteState(key) for key in _keys(group_id, partitions))
        results = yield from submit_all(requests, self._storage().delete)
        # The share coordinator deletes the state of a deleted topic without being asked.
        fine = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        results = {key: result for key, result in results.items() if result.error not in fine}
        _log_failure("delete", results)
        return {key.topic_id: result.error for key, result in results.items()}

    def _reset(self, effect: ResetShares) -> Slices[Outcome]:
        storage = self._storage()
        try:
            yield from result_of(storage.prepare())
        except KafkaError as error:
            logger.warning("Failed to alter the start offsets of group %s: %s", effect.group_id, error)
            return _not_reset(effect, error.code)
        requests = (
            InitializeState(ShareKey(effect.group_id, topic, index), effect.state_epoch, offset)
            for topic, offsets in effect.offsets.items()
            for index, offset in offsets.items()
        )
        results = yield from submit_all(requests, storage.initialize)
        _log_failure("reset", results)
        failed = {key[1:]: result.error for key, result in results.items() if result.error is not ErrorCode.NONE}
        return lambda shard, _now: shard.shares_reset(effect, failed)


def _keys(group_id: str, partitions: Partitions) -> Iterator[ShareKey]:
    return (ShareKey(group_id, topic, index) for topic, indexes in partitions.items() for index in sorted(indexes))


def _log_failure(verb: str, results: Mapping[ShareKey, Result]) -> None:
    """Log the first of the results that failed."""
    failed = [(key, result) for key, result in results.items() if result.error is not ErrorCode.NONE]
    if failed:
        (key, result), count = failed[0], len(failed)
        text = "Failed to %s %d share partitions, one of them %s: %s"
        logger.warning(text, verb, count, key.coordinator_key, result.message or result.error.name)


def _initialized(effect: InitializeShares, keys: Iterable[ShareKey]) -> Outcome:
    done: dict[Uuid, set[int]] = {}
    for key in keys:
        done.setdefault(key.topic_id, set()).add(key.partition)
    partitions = {topic: frozenset(indexes) for topic, indexes in done.items()}
    return lambda shard, _now: shard.shares_initialized(effect, partitions)


def _deleted(effect: DeleteShares, error: ErrorCode) -> Outcome:
    return lambda shard, _now: shard.shares_deleted(effect.group_id, error)


def _not_reset(effect: ResetShares, error: ErrorCode) -> Outcome:
    failed = {(topic, index): error for topic, offsets in effect.offsets.items() for index in offsets}
    return lambda shard, _now: shard.shares_reset(effect, failed)


def _forgotten(effect: ForgetShares, failed: Mapping[Uuid, ErrorCode]) -> Outcome:
    return lambda shard, _now: shard.shares_forgotten(effect, failed)

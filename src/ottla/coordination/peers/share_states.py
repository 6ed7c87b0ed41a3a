"""The share coordinators of all brokers: requests about share state go to the coordinator that has it. KIP-932.

This broker answers for the partitions that it coordinates. Otherwise the request goes to the leader of the partition of
`__share_group_state`, and is repeated a few times while that partition moves: all requests can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.coordinators.share.events import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    Result,
    ShareKey,
    WriteState,
)
from ottla.coordinators.share.state_batches import StateBatch
from ottla.metadata.image import NO_LEADER
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.common.timers import CallLater
    from ottla.coordination.peers.batching import PeerQueue
    from ottla.coordination.shares.coordinator import Request, ShareCoordinator
    from ottla.protocol.message import Message

ATTEMPTS = 5
PAUSE_MS = 100
"""Before the second attempt; it doubles."""
_RETRIED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

ShareQueues: TypeAlias = "Mapping[type, PeerQueue[Any, Result]]"
"""The requests to other brokers, by their types."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How requests of one type are written: a message, its elements, and the other fields of a row of the response."""

    request: Callable[..., Message]
    topic: Callable[..., object]
    row: Callable[[Any], object]
    result: Callable[[Any], dict[str, Any]] = lambda _row: {}


def _write_row(request: WriteState) -> write_share_group_state.PartitionData:
    return write_share_group_state.PartitionData(
        partition=request.key.partition,
        state_epoch=request.state_epoch,
        leader_epoch=request.leader_epoch,
        start_offset=request.start_offset,
        delivery_complete_count=request.delivery_complete_count,
        state_batches=[write_share_group_state.StateBatch(*batch) for batch in request.batches],
    )


def _read_result(row: read_share_group_state.PartitionResult) -> dict[str, Any]:
    batches = tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in row.state_batches
    )
    return {"state_epoch": row.state_epoch, "start_offset": row.start_offset, "batches": batches}


def _summary_result(row: read_share_group_state_summary.PartitionResult) -> dict[str, Any]:
    return {
        "state_epoch": row.state_epoch,
        "leader_epoch": row.leader_epoch,
        "start_offset": row.start_offset,
        "delivery_complete_count": row.delivery_complete_count,
    }


_FORMS: Mapping[type, _Form] = {
    InitializeState: _Form(
        initialize_share_group_state.InitializeShareGroupStateRequest,
        initialize_share_group_state.InitializeStateData,
        lambda request: initialize_share_group_state.PartitionData(
            partition=request.key.partition, state_epoch=request.state_epoch, start_offset=request.start_offset
        ),
    ),
    ReadState: _Form(
        read_share_group_state.ReadShareGroupStateRequest,
        read_share_group_state.ReadStateData,
        lambda request: read_share_group_state.PartitionData(
            partition=request.key.partition, leader_epoch=request.leader_epoch
        ),
        _read_result,
    ),
    ReadSummary: _Form(
        read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
        read_share_group_state_summary.ReadStateSummaryData,
        lambda request: read_share_group_state_summary.PartitionData(partition=request.key.partition, leader_epoch=-1),
        _summary_result,
    ),
    WriteState: _Form(
        write_share_group_state.WriteShareGroupStateRequest, write_share_group_state.WriteStateData, _write_row
    ),
    DeleteState: _Form(
        delete_share_group_state.DeleteShareGroupStateRequest,
        delete_share_group_state.DeleteStateData,
        lambda request: delete_share_group_state.PartitionData(partition=request.key.partition),
    ),
}
REQUEST_TYPES = tuple(_FORMS)


class ShareStateKind:
    """Requests of one type, sent together for each group."""

    least_version = 0

    def __init__(self, request_type: type) -> None:
        self._form = _FORMS[request_type]

    def group(self, question: Request) -> object:
        """The group of consumers: a request names one."""
        return question.key.group_id

    def key(self, question: Request) -> object:
        """The share partition."""
        return question.key

    def request(self, batch: list[Request]) -> Message:
        """One row for each question."""
        topics: dict[Uuid, list[object]] = {}
        for question in batch:
            topics.setdefault(question.key.topic_id, []).append(self._form.row(question))
        return self._form.request(
            group_id=batch[0].key.group_id,
            topics=[self._form.topic(topic_id=topic_id, partitions=rows) for topic_id, rows in topics.items()],
        )

    def answers(self, batch: list[Request], response: Message) -> list[Result]:
        """The result of each share partition."""
        group_id = batch[0].key.group_id
        found: dict[ShareKey, Result] = {}
        for topic in response.results:  # type: ignore[attr-defined]  # each of the responses has it
            for row in topic.partitions:
                error = error_code(row.error_code)
                values = self._form.result(row) if error is ErrorCode.NONE else {}
                found[ShareKey(group_id, topic.topic_id, row.partition)] = Result(error, row.error_message, **values)
        return [found.get(question.key, _NO_RESULT) for question in batch]

    def failure(self, question: Request, error: KafkaError) -> Result:  # noqa: ARG002 - the same for all
        """The coordinator may be found again."""
        is_lost = error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE)
        return Result(ErrorCode.COORDINATOR_NOT_AVAILABLE if is_lost else error.code, str(error))


_NO_RESULT = Result(ErrorCode.UNKNOWN_SERVER_ERROR, "The response does not name the share partition.")


class ShareStates:
    """The share coordinators of all brokers; `coordinator` is this broker's."""

    def __init__(
        self, coordinator: ShareCoordinator, node_id: int, queues: Callable[[], ShareQueues], call_later: CallLater
    ) -> None:
        self._coordinator = coordinator
        self._node_id = node_id
        self._queues = queues
        self._call_later = call_later

    def submit(self, request: Request) -> Completion[Result]:
        """Pass a request to the coordinator of its share partition; completes with its result and never fails."""
        here = self._coordinator.submit(request)
        if here.done and here.result().error is not ErrorCode.NOT_COORDINATOR:
            return here
        answer: Completion[Result] = Completion()
        here.on_done(partial(self._decided_here, request, answer, 1))
        return answer

    def _attempt(self, request: Request, answer: Completion[Result], number: int) -> None:
        self._coordinator.submit(request).on_done(partial(self._decided_here, request, answer, number))

    def _decided_here(
        self, request: Request, answer: Completion[Result], number: int, done: Completion[Result]
    ) -> None:
        result = done.result()
        leader = self._coordinator.shards.topic.leader_of(request.key.coordinator_key)
        if result.error is not ErrorCode.NOT_COORDINATOR or leader == self._node_id:
            answer.complete(result)
        elif leader == NO_LEADER:
            self._decided(request, answer, number, Result(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._ask(leader, request).on_done(lambda asked: self._decided(request, answer, number, asked.result()))

    def _decided(self, request: Request, answer: Completion[Result], number: int, result: Result) -> None:
        if result.error not in _RETRIED or number >= ATTEMPTS:
            answer.complete(result)
            return
        delay_s = PAUSE_MS / 1000 * 2 ** (number - 1)
        self._call_later(delay_s, partial(self._attempt, request, answer, number + 1))

    def _ask(self, node_id: int, request: Request) -> Completion[Result]:
        queues = self._queues()
        if not isinstance(request, InitializeState) or not request.keeps_existing:
            return queues[type(request)].ask(node_id, request)
        # The protocol has no such request: look whether state exists first. Only this coordinator creates it.
        answer: Completion[Result] = Completion()

        def read(done: Completion[Result]) -> None:
            found = done.result()
            if found.error is not ErrorCode.NONE:
                answer.complete(found)
            elif found.state_epoch > 0 or found.start_offset >= 0:
                answer.complete(Result())
            else:
                answer.follow(queues[InitializeState].ask(node_id, request))

        queues[ReadSummary].ask(node_id, ReadSummary(request.key)).on_done(read)
        return answer

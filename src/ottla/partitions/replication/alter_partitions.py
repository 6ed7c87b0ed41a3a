"""Sends changes of in-sync replicas to the active controller, in batches. KIP-497.

One request is in flight; the changes that arrive meanwhile form the next one. A request whose outcome is unknown is
sent again: the partition epoch in it makes a repetition harmless. A leader that loses its partition drops the change.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.replication.leader import ClusterView, IsrDecision, IsrProposal, Next

if TYPE_CHECKING:
    from ottla.common.completion import Completion
    from ottla.common.ids import Uuid
    from ottla.common.timers import CallLater
    from ottla.partitions.partition import Partition

logger = logging.getLogger(__name__)

TIMEOUT_S = 30.0
RETRY_S = 0.05
MOST_PARTITIONS = 1_000

Key = tuple["Uuid", int]


class Controller(Protocol):
    """The part of `ControllerChannel` that is used here."""

    def send(self, request: AlterPartitionRequest, *, timeout_s: float) -> Completion[Any]:
        """Send a request to the active controller; fails with KafkaError."""
        ...


class AlterPartitions:
    """The pending changes of the partitions that this node leads: at most one of each partition."""

    def __init__(self, controller: Controller, cluster: ClusterView, call_later: CallLater) -> None:
        self._controller = controller
        self._cluster = cluster
        self._call_later = call_later
        self._pending: dict[Key, tuple[Partition, IsrProposal]] = {}
        self._is_busy = False
        self._closed = False

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send the change together with other partitions' changes; the partition gets the answer."""
        logger.debug(
            "[Partition %s broker=%d] Changing ISR from %s to %s (high watermark %d, end offset %d)",
            partition.topic_partition,
            self._cluster.node_id,
            _text(partition.isr or ()),
            _text(proposal.isr),
            partition.high_watermark,
            partition.log.log_end_offset,
        )
        self._pending[partition.topic_id, partition.topic_partition.partition] = partition, proposal
        self._send_soon(0)

    def close(self) -> None:
        """Send no more changes."""
        self._closed = True

    def _send_soon(self, delay_s: float) -> None:
        if not self._is_busy and not self._closed and self._pending:
            self._is_busy = True
            self._call_later(delay_s, self._send)

    def _send(self) -> None:
        # A partition that was closed has a new leader, or the leader a new epoch.
        current = {key: each for key, each in self._pending.items() if not each[0].closed}
        sent = dict(islice(current.items(), MOST_PARTITIONS))
        self._pending = {key: each for key, each in current.items() if key not in sent}
        if self._closed or not sent:
            self._is_busy = False
            return
        topics: dict[Uuid, RequestTopicData] = {}
        for (topic_id, index), (_, proposal) in sent.items():
            topic = topics.setdefault(topic_id, RequestTopicData(topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                RequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[BrokerState(node_id, epoch) for node_id, epoch in proposal.members],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        request = AlterPartitionRequest(
            broker_id=self._cluster.node_id, broker_epoch=self._cluster.broker_epoch, topics=list(topics.values())
        )
        self._controller.send(request, timeout_s=TIMEOUT_S).on_done(lambda done: self._answered(sent, done))

    def _answered(self, sent: dict[Key, tuple[Partition, IsrProposal]], done: Completion[Any]) -> None:
        answers: dict[Key, tuple[ErrorCode, IsrDecision | None]] = {}
        try:
            response = done.result()
        except KafkaError as error:
            logger.info("AlterPartition failed and is sent again: %s", error)
            answers = dict.fromkeys(sent, (error.code, None))
        else:
            answers = _decisions(response)
            if response.error_code:
                logger.info("AlterPartition failed with error %d and is sent again", response.error_code)
                answers = dict.fromkeys(sent, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
        self._is_busy = False
        must_wait = False
        updated: list[Partition] = []
        for key, (partition, proposal) in sent.items():
            code, decision = answers.get(key, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
            following = partition.on_isr_answer(proposal, code, decision)
            if following is Next.RETRY:
                must_wait = True
                self._pending.setdefault(key, (partition, proposal))
            elif decision is not None:
                updated.append(partition)
                logger.debug(
                    "[Partition %s broker=%d] ISR updated to %s and version updated to %d",
                    partition.topic_partition,
                    self._cluster.node_id,
                    _text(decision.isr),
                    decision.partition_epoch,
                )
            else:
                logger.info(
                    "[Partition %s broker=%d] ISR was not changed: %s",
                    partition.topic_partition,
                    self._cluster.node_id,
                    code.name,
                )
        if updated:
            self._log(updated)
        self._send_soon(RETRY_S if must_wait else 0)

    def _log(self, updated: list[Partition]) -> None:
        """One line for all: a broker that starts joins the ISR of thousands of partitions."""
        if len(updated) == 1:
            text = f"Partition {updated[0].topic_partition}"
            logger.info("[%s broker=%d] ISR updated to %s", text, self._cluster.node_id, _text(updated[0].isr or ()))
            return
        smallest = min(len(partition.isr or ()) for partition in updated)
        text = "[Broker id=%d] ISR updated of %d partitions, to %d replicas or more, %s first"
        logger.info(text, self._cluster.node_id, len(updated), smallest, updated[0].topic_partition)


def _decisions(response: AlterPartitionResponse) -> dict[Key, tuple[ErrorCode, IsrDecision | None]]:
    answers: dict[Key, tuple[ErrorCode, IsrDecision | None]] = {}
    for topic in response.topics:
        for data in topic.partitions:
            decision = None
            if not data.error_code:
                decision = IsrDecision(data.leader_epoch, data.partition_epoch, tuple(data.isr))
            answers[topic.topic_id, data.partition_index] = ErrorCode(data.error_code), decision
    return answers


def _text(isr: tuple[int, ...]) -> str:
    return ",".join(map(str, isr))

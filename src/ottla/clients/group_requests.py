"""The requests of one member of a classic group whose assignments are not partitions.

The schema registry elects its primary, and Connect divides its work, in groups with protocol types of their own. They
differ in what members say and get, in what ends a membership, and in what a failure means; the requests are the same.
Source: the group protocol of Kafka Connect's and Confluent's WorkerCoordinator; KIP-394 for the id of a new member.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients.errors import BrokerError, ClientError, error_for
from ottla.clients.network import Cluster
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

logger = logging.getLogger(__name__)

_GRACE_S: Final = 5.0
_LEAVE_S: Final = 2.0


class GroupTimes(NamedTuple):
    """The times of a group."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    coordinator_timeout_s: float | None = None
    """How long a request looks for the coordinator; None: as the cluster's settings say."""


class GroupRequests:
    """Sends the requests; keeps the id that the group gave to the member, and its generation."""

    def __init__(self, cluster: Cluster, group_id: str, protocol_type: str, times: GroupTimes) -> None:
        self.member_id = ""
        self.generation = -1
        self._cluster = cluster
        self._group_id = group_id
        self._protocol_type = protocol_type
        self._times = times
        self._heard_s = time.monotonic()

    def silence_ms(self) -> float:
        """How long ago the coordinator last knew this member."""
        return (time.monotonic() - self._heard_s) * 1000

    def forget(self) -> None:
        """Join as another member the next time."""
        self.member_id, self.generation = "", -1

    async def join(self, offers: Sequence[tuple[str, bytes]]) -> JoinGroupResponse:
        """Join with the name and the metadata of each protocol, in order of preference. Raises ClientError."""
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._times.session_timeout_ms,
            rebalance_timeout_ms=self._times.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type=self._protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in offers],
        )
        joined: JoinGroupResponse
        try:
            joined = await self.send(request, self._rebalance_s)
        except _MemberIdRequired as error:  # KIP-394: join again with the id from the response
            self.member_id = request.member_id = error.member_id
            joined = await self.send(request, self._rebalance_s)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        return joined

    async def sync(self, protocol_name: str, chosen: Mapping[str, bytes]) -> bytes:
        """Send the assignments that the leader chose; return this member's assignment. Raises ClientError."""
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=self._protocol_type,
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(member_id=each, assignment=data) for each, data in chosen.items()],
        )
        return bytes((await self.send(request, self._rebalance_s)).assignment)

    async def heartbeat(self, timeout_s: float) -> None:
        """Send a heartbeat. Raises ClientError."""
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self.generation, member_id=self.member_id
        )  # fmt: skip
        await self.send(request, timeout_s)

    async def leave(self, reason: str) -> None:
        """Leave the group, so that it rebalances without a session timeout. An error is a line of the log."""
        if not self.member_id:
            return
        members = [MemberIdentity(member_id=self.member_id, reason=reason)]
        request = LeaveGroupRequest(group_id=self._group_id, member_id=self.member_id, members=members)
        try:
            await self.send(request, _LEAVE_S)
        except ClientError as error:
            logger.info("Could not leave the group: %s", error)

    @property
    def _rebalance_s(self) -> float:
        return self._times.rebalance_timeout_ms / 1000 + _GRACE_S

    async def send(self, request: Any, timeout_s: float) -> Any:
        """Send a request to the coordinator; return its response. Raises ClientError, also for an error in it."""
        node = await self._cluster.coordinator(self._group_id, timeout_s=self._times.coordinator_timeout_s)
        response = await self._cluster.send(node, request, timeout_s=timeout_s, purpose="group")
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            raise _MemberIdRequired(response.member_id)
        if response.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heard_s = time.monotonic()
        if response.error_code:
            error: BrokerError = error_for(response.error_code)
            raise error
        return response


class _MemberIdRequired(Exception):
    """The broker chose a member id, with which the member joins."""

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.member_id = member_id

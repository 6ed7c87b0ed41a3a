"""This worker as a member of its group: joins, sends heartbeats, divides the work as the leader; see `runtime`.

Rebalances are cooperative: work goes on while the group rebalances. A result is applied in this order: stop what was
revoked and write its states; read the configurations up to the leader's offset; claim or give up the leader's writes;
start what was added. After a revocation the member joins again, which frees the revoked work for others.

Membership is not a lease by itself. A member that the group has removed stops all its work before it joins again, as
does one that could not reach the coordinator for a session timeout. A process that was paused learns it late: the
fencing of producers protects exactly-once sources from it (KIP-618).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from ottla.clients.errors import ClientError, IllegalGeneration, RebalanceInProgress, UnknownMember
from ottla.clients.group_requests import GroupRequests, GroupTimes
from ottla.clients.network import Cluster
from ottla.connect.cluster import protocol
from ottla.connect.cluster.assignor import Memory, Round, assign
from ottla.connect.cluster.protocol import NO_WORK, GroupAssignment, MemberState, Work
from ottla.connect.errors import ConnectError
from ottla.connect.runtime import Assignment, WorkListener
from ottla.protocol.messages.join_group import JoinGroupResponse

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 2.0


class GroupSettings(NamedTuple):
    """The group and its times, with Kafka Connect's defaults."""

    group_id: str
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    max_delay_ms: int = 300_000
    """scheduled.rebalance.max.delay.ms"""
    protocols: tuple[str, ...] = (protocol.SESSIONED, protocol.COMPATIBLE)


class Configurations(Protocol):
    """The part of the store that a member needs."""

    @property
    def offset(self) -> int:
        """The offset up to which the configurations are read."""
        ...

    def work(self) -> Work:
        """All connectors and tasks that should be assigned."""
        ...

    async def refresh(self) -> None:
        """Read to the end. Raises ConnectError."""
        ...

    async def flush(self) -> None:
        """Wait until the states of stopped work are written. Raises ConnectError."""
        ...


class GroupMember:
    """One member. `run` takes part until it is cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        url: str,
        configurations: Configurations,
        leadership: Callable[[bool], Awaitable[None]],
    ) -> None:
        """`leadership` is awaited after each rebalance, with whether this member leads; it does not raise."""
        self.listener: WorkListener | None = None
        self.assignment: Assignment | None = None
        """The last assignment; None before the first one, and after the group removed this member."""
        self.joined = asyncio.Event()
        """Set when the first assignment was applied."""
        self.owners: dict[str, Work] = {}
        """As the leader: the work of each worker, by its address."""
        self.url = url
        self._cluster = cluster
        self._settings = settings
        self._configurations = configurations
        self._leadership = leadership
        times = GroupTimes(
            settings.session_timeout_ms, settings.rebalance_timeout_ms, settings.session_timeout_ms / 2000
        )
        self._group = GroupRequests(cluster, settings.group_id, protocol.PROTOCOL_TYPE, times)
        self._state = _Membership()
        self._memory = Memory()
        self._rejoin = asyncio.Event()

    def rejoin(self, reason: str) -> None:
        """Have the work divided again. Does not wait."""
        logger.debug("Joining the group again: %s", reason)
        self._rejoin.set()

    async def run(self) -> None:
        """Join, and send heartbeats. Every error of the group is retried."""
        pause_s = _RETRY_S
        while True:
            try:
                await self._take_part()
                pause_s = _RETRY_S
            except RebalanceInProgress:
                continue
            except (UnknownMember, IllegalGeneration) as error:
                logger.warning("The group removed this worker, joining again: %s", error)
                if isinstance(error, UnknownMember):
                    self._group.forget()
                await self._lose()
            except (ClientError, ConnectError) as error:
                if isinstance(error, ClientError):
                    self._cluster.forget_coordinator(self._settings.group_id)
                logger.warning("The group is joined again: %s", error)
                if self._group.silence_ms() > self._settings.session_timeout_ms and self._state.work:
                    logger.warning("The group was not reached for a session timeout: stopping the work of this worker")
                    await self._lose()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    async def leave(self, reason: str = "the worker stops") -> None:
        """Leave the group, so that the others take the work without a session timeout."""
        await self._group.leave(reason)
        self._group.forget()
        self._state = _Membership()

    # -- one rebalance ------------------------------------------------------------------------------------------

    async def _take_part(self) -> None:
        """Join and apply the assignment, then stay until another rebalance is due. Raises ClientError, ConnectError."""
        assignment = await self._join()
        beating = asyncio.create_task(self._beat(), name="heartbeats of the Connect group")
        due = asyncio.create_task(self._rejoin.wait())
        try:
            again_s = await self._apply(assignment)
            if again_s != 0:
                await asyncio.wait([beating, due], timeout=again_s, return_when=asyncio.FIRST_COMPLETED)
            if beating.done():
                beating.result()
        finally:
            for task in (beating, due):
                task.cancel()
            await asyncio.wait([beating, due])
            if not beating.cancelled():
                beating.exception()  # a later one than the error that is raised

    async def _join(self) -> GroupAssignment:
        state = self._state
        self._rejoin.clear()
        member = MemberState(self.url, self._configurations.offset, state.work)
        joined = await self._group.join(
            [
                (name, protocol.encode_member(member, protocol.VERSIONS[name], state.last))
                for name in self._settings.protocols
            ]
        )
        chosen: dict[str, bytes] = {}
        if joined.leader == joined.member_id:
            chosen = await self._divide(joined)
        result = await self._group.sync(joined.protocol_name or "", chosen)
        try:
            assignment = protocol.decode_assignment(result)
        except protocol.MalformedError as error:
            raise ConnectError(f"The leader's assignment cannot be read: {error}") from error
        state.last_generation = self._group.generation
        return assignment

    async def _divide(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        """As the leader, return the assignment of each member."""
        members = {each.member_id: protocol.decode_member(bytes(each.metadata)) for each in joined.members}
        version = protocol.VERSIONS.get(joined.protocol_name or "", 1)
        await self._configurations.refresh()
        offset = self._configurations.offset
        base = GroupAssignment(joined.leader, self.url, offset)
        if offset < max(member.offset for member in members.values()):
            failed = replace(base, error=protocol.CONFIG_MISMATCH)
            return dict.fromkeys(members, protocol.encode_assignment(failed, version))
        round_ = Round(
            self._configurations.work(),
            {member_id: member.work for member_id, member in members.items()},
            joined.generation_id,
            self._state.last_generation,
            time.monotonic_ns() // 1_000_000,
            self._settings.max_delay_ms,
        )
        result = assign(round_, self._memory)
        self._memory = result.memory
        self.owners = {
            member.url: (member.work | result.shares[each].added) - result.shares[each].revoked
            for each, member in members.items()
        }
        return {
            member_id: protocol.encode_assignment(
                replace(base, added=share.added, revoked=share.revoked, delay_ms=result.delay_ms), version
            )
            for member_id, share in result.shares.items()
        }

    async def _apply(self, assignment: GroupAssignment) -> float | None:
        """Apply a result. Returns the seconds until the member joins again, None: until something happens."""
        state = self._state
        if assignment.error:
            await self._configurations.refresh()
            return _RETRY_S
        listener = self.listener
        revoked = assignment.revoked & state.work
        if revoked and listener is not None:
            await listener.revoked(revoked.connectors, revoked.tasks)
            try:
                await self._configurations.flush()
            except ConnectError as error:  # the next worker of the work writes its state, too
                logger.warning("%s", error)
        state.work = (state.work - assignment.revoked) | assignment.added
        state.last = assignment
        if self._configurations.offset < assignment.offset:
            await self._configurations.refresh()
        is_leader = assignment.leader == self._group.member_id
        if not is_leader:
            self.owners = {}
        self.assignment = Assignment(
            self._group.generation, assignment.leader_url, is_leader, state.work.connectors, state.work.tasks
        )
        logger.info(
            "Generation %d: %d connectors and %d tasks run here; the leader is %s%s",
            self._group.generation,
            len(state.work.connectors),
            len(state.work.tasks),
            assignment.leader_url,
            " (this worker)" if is_leader else "",
        )
        await self._leadership(is_leader)
        if listener is not None:
            await listener.assigned(self.assignment)
        self.joined.set()
        if assignment.revoked:
            return 0.0
        return assignment.delay_ms / 1000 if assignment.delay_ms > 0 else None

    async def _beat(self) -> None:
        """Send heartbeats until the group answers with an error, or not for a session timeout. Raises ClientError."""
        settings = self._settings
        while True:
            await asyncio.sleep(settings.heartbeat_interval_ms / 1000)
            try:
                await self._group.heartbeat(settings.session_timeout_ms / 2000)
            except (RebalanceInProgress, UnknownMember, IllegalGeneration):
                raise
            except ClientError as error:  # the coordinator restarts, or moves
                if not error.retriable or self._group.silence_ms() > settings.session_timeout_ms:
                    raise
                self._cluster.forget_coordinator(settings.group_id)

    async def _lose(self) -> None:
        """Stop all work: another worker may have it already."""
        work, self._state.work, self._state.last = self._state.work, NO_WORK, None
        self.assignment, self.owners = None, {}
        await self._leadership(False)
        if work and self.listener is not None:
            try:
                await self.listener.revoked(work.connectors, work.tasks)
            except ConnectError as error:
                logger.warning("A part of the work of this worker did not stop: %s", error)


class _Membership:
    """The work of this member."""

    def __init__(self) -> None:
        self.last_generation = -1
        self.work = NO_WORK
        self.last: GroupAssignment | None = None

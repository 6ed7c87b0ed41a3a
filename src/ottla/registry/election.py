"""The election of the primary: a group with the protocol type `sr`, as Confluent's registry and Karapace have it.

Each node joins with its address and its eligibility as JSON. The leader of the group (not the primary) chooses: the
eligible member that is the primary already, else the one with the smallest URL. All members receive the same
assignment. Nodes of all three implementations can be in one group.

Membership is not a lease: a node that is paused may believe that it is the primary. `writer` fences it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from ottla.clients.errors import ClientError, IllegalGeneration, RebalanceInProgress, UnknownMember
from ottla.clients.group_requests import GroupRequests, GroupTimes
from ottla.clients.network import Cluster

logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
NO_ERROR: Final = 0
DUPLICATE_URLS: Final = 1
_VERSION: Final = 1
_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 2.0


class Identity(NamedTuple):
    """The address of a node, where the other nodes forward requests."""

    scheme: str
    host: str
    port: int
    eligible: bool = True

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def as_json(self, *, is_primary: bool = False) -> dict[str, Any]:
        """Return the form of the group's protocol."""
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": is_primary,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Identity:
        """Read the form of the group's protocol. Raises ValueError."""
        host, port = fields.get("host"), fields.get("port")
        if not isinstance(host, str) or not isinstance(port, int):
            raise ValueError("host or port is missing")  # noqa: TRY004 - a wrong value from another node
        return cls(str(fields.get("scheme") or "http"), host, port, fields.get("master_eligibility") is True)


class GroupSettings(NamedTuple):
    """The group and its times."""

    group_id: str = "schema-registry"
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000


class Assignment(NamedTuple):
    """The result of an election; the primary is None if no member is eligible, or if two have one URL."""

    member_id: str | None
    primary: Identity | None
    error: int = NO_ERROR

    def encode(self) -> bytes:
        """Return the bytes that each member receives."""
        identity = None if self.primary is None else self.primary.as_json()
        fields = {"version": _VERSION, "error": self.error, "master": self.member_id, "master_identity": identity}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """Read what the leader of the group sent. Raises ValueError."""
        fields = json.loads(data)
        if not isinstance(fields, dict):
            raise ValueError("the assignment is not a JSON object")  # noqa: TRY004
        error, identity = fields.get("error") or NO_ERROR, fields.get("master_identity")
        primary = Identity.from_json(identity) if isinstance(identity, dict) and error == NO_ERROR else None
        # Karapace names a member that is not eligible if no member is.
        is_usable = primary is not None and primary.eligible
        return cls(fields.get("master") if is_usable else None, primary if is_usable else None, error)


def elect(members: Mapping[str, bytes]) -> Assignment:
    """Choose the primary of a group from the metadata of each member."""
    eligible: list[tuple[str, str, Identity]] = []
    primaries: list[tuple[str, Identity]] = []
    urls = set()
    for member_id, data in members.items():
        try:
            fields = json.loads(data)
            identity = Identity.from_json(fields)
        except (ValueError, AttributeError) as error:
            logger.warning("The metadata of the member %s cannot be read: %s", member_id, error)
            urls.add(member_id)
            continue
        urls.add(identity.url)
        if identity.eligible:
            eligible.append((identity.url, member_id, identity))
            if fields.get("leader") is True:
                primaries.append((member_id, identity))
    if len(urls) < len(members):
        return Assignment(None, None, DUPLICATE_URLS)
    if len(primaries) == 1:
        return Assignment(*primaries[0])
    if not eligible:
        return Assignment(None, None)
    _, member_id, identity = min(eligible)
    return Assignment(member_id, identity)


class Election:
    """One member of the group. `run` takes part until it is cancelled; `changed` is awaited after each election."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        identity: Identity,
        changed: Callable[[Assignment, bool], Awaitable[None]],
    ) -> None:
        self.identity = identity
        self.assignment: Assignment | None = None
        """The last result; None before the first one, and after the group removed this member."""
        self.is_primary = False
        self.joined = asyncio.Event()
        """Set after the first election."""
        self._cluster = cluster
        self._settings = settings
        self._changed = changed
        times = GroupTimes(settings.session_timeout_ms, settings.rebalance_timeout_ms)
        self._group = GroupRequests(cluster, settings.group_id, PROTOCOL_TYPE, times)
        self._rejoin = asyncio.Event()

    def rejoin(self) -> None:
        """Give up the role of the primary, and join the group again."""
        self._rejoin.set()

    async def run(self) -> None:
        """Join, and send heartbeats. Every error is retried: without the group there is no primary."""
        pause_s = _RETRY_S
        while True:
            try:
                await self._join()
                pause_s = _RETRY_S
                await self._stay()
            except RebalanceInProgress:
                continue
            except (UnknownMember, IllegalGeneration) as error:
                logger.warning("The group removed this node, joining again: %s", error)
                if isinstance(error, UnknownMember):
                    self._group.forget()
                await self._lose()
            except ClientError as error:
                self._cluster.forget_coordinator(self._settings.group_id)
                (logger.debug if error.retriable else logger.warning)("The election is retried: %s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    async def leave(self) -> None:
        """Leave the group, so that it elects another primary at once."""
        await self._group.leave("the registry stops")

    async def _join(self) -> None:
        self._rejoin.clear()
        metadata = json.dumps(self.identity.as_json(is_primary=self.is_primary), separators=(",", ":")).encode()
        joined = await self._group.join([(PROTOCOL, metadata)])
        chosen: dict[str, bytes] = {}
        if joined.leader == joined.member_id:
            members = {member.member_id: member.metadata for member in joined.members}
            chosen = dict.fromkeys(members, elect(members).encode())
        result = await self._group.sync(PROTOCOL, chosen)
        try:
            assignment = Assignment.decode(result)
        except ValueError as error:
            logger.warning("The result of the election cannot be read: %s", error)
            assignment = Assignment(None, None)
        await self._adopt(assignment)

    async def _adopt(self, assignment: Assignment) -> None:
        if assignment.error == DUPLICATE_URLS:
            logger.error(
                "Two registries have one address, so that there is no primary: set host.name of each to a name that"
                " the others can reach (this one is %s)",
                self.identity.url,
            )
        elif assignment.primary is None:
            logger.warning("No eligible registry is in the group: schemas can be read, but not registered")
        self.assignment = assignment
        self.is_primary = assignment.member_id == self._group.member_id
        logger.info(
            "The primary is %s%s",
            None if assignment.primary is None else assignment.primary.url,
            " (this node)" if self.is_primary else "",
        )
        await self._changed(assignment, self.is_primary)
        self.joined.set()

    async def _stay(self) -> None:
        """Send heartbeats until the group rebalances. Raises ClientError."""
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while True:
            try:
                async with asyncio.timeout(interval_s):
                    await self._rejoin.wait()
            except TimeoutError:
                await self._group.heartbeat(self._settings.session_timeout_ms / 1000)
            else:
                await self._lose()
                return

    async def _lose(self) -> None:
        self.is_primary = False
        if self.assignment is not None:
            self.assignment = None
            await self._changed(Assignment(None, None), False)

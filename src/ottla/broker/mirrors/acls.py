"""Copies the access rules of topics and groups from the source of a mirror. KIP-140, KIP-290.

Each rule that applies to a copied topic at the source becomes a literal rule for its name here: a rule for all topics,
or for a prefix of names, would also apply to topics of this cluster that are not copies. Rules of groups are copied if
their name matches the pattern of groups. All operations are copied: the state of a copy refuses writes, and its clients
need their rights when it is promoted.

The record of a copied rule names the mirror and the source's cluster, so that a rule that the source has deleted is
deleted here, too, and a rule of this cluster is not. That also holds after a failure between any two steps: each copy
compares all rules again. A rule is deleted only if no node of the source has it, since one node may be behind. The
order of the steps never allows for a moment what the source forbids before and after its change.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.mirrors.source import Source, awaited
from ottla.broker.mirrors.stand_in import Decider, StandIn, StandInNode
from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.controller.controller import Controller
from ottla.metadata.mirrors import TopicNames, is_read_only_state
from ottla.network.errors import NetworkError
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.security.acl import WILDCARD, Acl, Operation, Pattern, PatternType, PermissionType, ResourceType

if TYPE_CHECKING:
    from ottla.common.ids import Uuid
    from ottla.common.slices import Slices
    from ottla.controller.state import Outcome
    from ottla.protocol.messages.create_acls import CreateAclsResponse
    from ottla.protocol.messages.describe_acls import DescribeAclsResponse

logger = logging.getLogger(__name__)

INTERVAL_MS: Final = 60_000
MOST_RULES: Final = 50_000
# The controller accepts at most 10,000 records in one request. A rule of several mirrors takes two.
_CHANGED_AT_ONCE: Final = 5_000


class AclPorts(StandInNode, Protocol):
    """The parts of the node that copy rules."""


class AclCopier:
    """Copies rules every minute, and at once when topics are added.

    Only the active controller and its stand-in call `copy`.
    """

    def __init__(
        self, node: AclPorts, mirror: str, source: Source, groups: re.Pattern[str] | None, names: TopicNames
    ) -> None:
        self._node = node
        self._mirror = mirror
        self._source = source
        self._groups = groups
        self._names = names
        self._stand_in = StandIn(node, INTERVAL_MS)
        self._decider: Decider = node.metadata
        self._topics: list[str] = []
        self._due_ms = node.clock.monotonic_ms()
        self.problem = ""
        """Why the last copy failed."""

    async def copy(self, states: Mapping[str, str], *, decides: bool = True) -> None:
        """Copy the rules of topics that are read-only here. Raises NetworkError.

        Without `decides`, this node is the stand-in of the active controller, and only finds the problem.
        """
        read_only = (name for name, state in states.items() if is_read_only_state(state))
        topics = sorted(self._names.at_source(name) for name in read_only)
        now_ms = self._node.clock.monotonic_ms()
        if not topics or (topics == self._topics and now_ms < self._due_ms):
            return
        before = self.problem
        self._decider = self._node.metadata if decides else self._stand_in
        try:
            self.problem = await self._follow(topics)
            overdue = [] if decides else self._stand_in.overdue()
            if overdue and not self.problem:
                self.problem = self._stand_in.problem(f"copied all changes of access rules ({len(overdue)} missing)")
        except KafkaError as error:
            self.problem = f"The access rules are not copied: {error}"
        if self.problem not in ("", before):
            logger.warning("%s", self.problem)
        self._topics, self._due_ms = topics, now_ms + INTERVAL_MS

    async def _follow(self, topics: Sequence[str]) -> str:
        """Create and delete rules; returns the first problem. Raises NetworkError, KafkaError."""
        wanted = await self._wanted(topics)
        if len(wanted) > MOST_RULES:
            return f"The access rules are not copied: they are more than {MOST_RULES}, one for each topic of a rule"
        outdated = await self._outdated(wanted, topics)
        deny, allow = PermissionType.DENY, PermissionType.ALLOW
        # A rule that denies is created before, and deleted after, all rules that allow.
        problem = await self._create([acl for acl in wanted if acl.permission == deny])
        await self._withdraw([acl_id for acl_id, acl in outdated.items() if acl.permission == allow])
        problem = await self._create([acl for acl in wanted if acl.permission != deny]) or problem
        await self._withdraw([acl_id for acl_id, acl in outdated.items() if acl.permission != allow])
        return problem

    async def _wanted(self, topics: Sequence[str], node_id: int | None = None) -> dict[Acl, None]:
        """The rules of the source, by default of any of its nodes, as this cluster needs them; one above the limit."""
        found = await self._read(ResourceType.TOPIC, node_id)
        if self._groups is not None:
            found += await self._read(ResourceType.GROUP, node_id)
        return dict.fromkeys(islice(rules_here(found, topics, self._groups, self._names), MOST_RULES + 1))

    @property
    def _owner(self) -> str:
        """The name of this mirror in records of rules. A mirror of this name for another source is another one."""
        return f"{self._mirror}@{self._source.cluster_id}" if self._source.cluster_id else ""

    async def _outdated(self, wanted: Container[Acl], topics: Sequence[str]) -> dict[Uuid, Acl]:
        """The rules that this mirror has copied, and that no node of the source has any more."""
        local = {self._names.local(topic) for topic in topics}

        def covers(acl: Acl) -> bool:
            kind, name, _ = acl.pattern
            if kind is ResourceType.TOPIC:
                return name in local
            return self._groups is not None and self._groups.fullmatch(name) is not None

        owner = self._owner
        decide: Callable[[Controller], Slices[Outcome[dict[Uuid, Acl]]]] = partial(
            Controller.outdated_acls, mirror=owner, wanted=wanted, covers=covers
        )
        found: dict[Uuid, Acl] = await awaited(self._decider.submit(decide)) if owner else {}
        for node_id in list(self._source.nodes) if found else ():
            try:
                known = await self._wanted(topics, node_id)
            except NetworkError:
                continue  # A node that is down has no newer rules.
            found = {acl_id: acl for acl_id, acl in found.items() if acl not in known}
        return found

    async def _withdraw(self, acl_ids: Sequence[Uuid]) -> None:
        """Delete rules that this mirror has copied. Raises KafkaError."""
        for start in range(0, len(acl_ids), _CHANGED_AT_ONCE):
            part = acl_ids[start : start + _CHANGED_AT_ONCE]
            decide: Callable[[Controller], Slices[Outcome[None]]] = partial(
                Controller.withdraw_acls, mirror=self._owner, acl_ids=part
            )
            await awaited(self._decider.submit(decide))
            if self._decider is self._node.metadata:
                logger.info("Mirror %s: deleted %d access rules, as its source has", self._mirror, len(part))

    async def _read(self, kind: ResourceType, node_id: int | None) -> list[Acl]:
        """The source's rules of a type of resources. Raises NetworkError, KafkaError."""
        selected = DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=PermissionType.ANY,
        )
        response: DescribeAclsResponse = await self._source.ask(selected, node_id)
        if response.error_code:
            error = error_code(response.error_code)
            is_off = error is ErrorCode.SECURITY_DISABLED
            step = f"; it has no authorizer: `ottla mirror alter {self._mirror} --copy none`" if is_off else ""
            raise KafkaError(error, f"the source returned {error.name}{step}")
        return [
            Acl(
                Pattern(kind, resource.resource_name, PatternType(resource.pattern_type)),
                row.principal,
                row.host,
                Operation(row.operation),
                PermissionType(row.permission_type),
            )
            for resource in response.resources
            for row in resource.acls
        ]

    async def _create(self, wanted: Sequence[Acl]) -> str:
        """Create the rules that do not exist here yet; returns the first problem. Raises KafkaError."""
        problem = ""
        for start in range(0, len(wanted), _CHANGED_AT_ONCE):
            rows = [creation_of(acl) for acl in wanted[start : start + _CHANGED_AT_ONCE]]
            decide = partial(_create, rows, self._owner)
            response = await awaited(self._decider.submit(decide))
            refused = (result.error_message or "" for result in response.results if result.error_code)
            problem = problem or next((f"An access rule is not copied: {text}" for text in refused), "")
        return problem


def _create(rows: list[AclCreation], owner: str, controller: Controller) -> Slices[Outcome[CreateAclsResponse]]:
    return controller.create_acls(CreateAclsRequest(creations=rows), owner)


def creation_of(acl: Acl) -> AclCreation:
    """The row of a request that creates a rule."""
    return AclCreation(
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        resource_pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def rules_here(
    found: Iterable[Acl], topics: Sequence[str], groups: re.Pattern[str] | None, names: TopicNames
) -> Iterator[Acl]:
    """The rules of the source as this cluster needs them. `topics` are the sorted names of copied topics there."""
    for acl in found:
        kind, name, _ = acl.pattern
        if kind is ResourceType.TOPIC:
            for topic in _matching(acl.pattern, topics):
                yield acl._replace(pattern=Pattern(kind, names.local(topic) or topic))
        elif groups is not None and groups.fullmatch(name):
            yield acl


def _matching(pattern: Pattern, topics: Sequence[str]) -> Iterable[str]:
    """The names that a pattern matches, of sorted ones."""
    if pattern.name == WILDCARD and pattern.pattern_type is PatternType.LITERAL:
        return topics
    rest = (topics[index] for index in range(bisect_left(topics, pattern.name), len(topics)))
    return takewhile(partial(pattern.matches, ResourceType.TOPIC), rest)

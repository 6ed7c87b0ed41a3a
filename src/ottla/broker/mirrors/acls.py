"""Copies the access rules of topics and groups from the source of a mirror. KIP-140, KIP-290.

Each rule that applies to a copied topic at the source becomes a literal rule for its name here: a rule for all topics,
or for a prefix of names, would also apply to topics of this cluster that are not copies. Rules of groups are copied if
their name matches the pattern of groups. All operations are copied: the state of a copy refuses writes, and its clients
need their rights when it is promoted. Rules are only added, since a rule does not say where it comes from.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.mirrors.source import Source, awaited
from ottla.common.errors import KafkaError, error_code
from ottla.controller.controller import Controller
from ottla.metadata.mirrors import TopicNames, is_read_only_state
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.security.acl import WILDCARD, Acl, Operation, Pattern, PatternType, PermissionType, ResourceType

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.common.clock import Clock
    from ottla.common.slices import Slices
    from ottla.controller.state import Outcome
    from ottla.protocol.messages.create_acls import CreateAclsResponse
    from ottla.protocol.messages.describe_acls import DescribeAclsResponse

logger = logging.getLogger(__name__)

INTERVAL_MS: Final = 60_000
MOST_RULES: Final = 50_000
# The controller accepts at most 10,000 rules in one request.
_CREATED_AT_ONCE: Final = 5_000


class AclPorts(Protocol):
    """The parts of the node that copy rules."""

    metadata: MetadataShell
    clock: Clock


class AclCopier:
    """Copies rules every minute, and at once when topics are added. Only the active controller calls `copy`."""

    def __init__(self, node: AclPorts, source: Source, groups: re.Pattern[str] | None, names: TopicNames) -> None:
        self._node = node
        self._source = source
        self._groups = groups
        self._names = names
        self._topics: list[str] = []
        self._due_ms = node.clock.monotonic_ms()
        self.problem = ""
        """Why the last copy failed."""

    async def copy(self, states: Mapping[str, str]) -> None:
        """Copy the rules of topics that are read-only here. Raises NetworkError."""
        read_only = (name for name, state in states.items() if is_read_only_state(state))
        topics = sorted(self._names.at_source(name) for name in read_only)
        now_ms = self._node.clock.monotonic_ms()
        if not topics or (topics == self._topics and now_ms < self._due_ms):
            return
        before = self.problem
        try:
            found = await self._read(ResourceType.TOPIC)
            if self._groups is not None:
                found += await self._read(ResourceType.GROUP)
            wanted = list(islice(rules_here(found, topics, self._groups, self._names), MOST_RULES + 1))
            self.problem = await self._create(wanted)
        except KafkaError as error:
            self.problem = f"The access rules are not copied: {error}"
        if self.problem not in ("", before):
            logger.warning("%s", self.problem)
        self._topics, self._due_ms = topics, now_ms + INTERVAL_MS

    async def _read(self, kind: ResourceType) -> list[Acl]:
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
        response: DescribeAclsResponse = await self._source.ask(selected)
        if response.error_code:
            error = error_code(response.error_code)
            raise KafkaError(error, f"the source returned {error.name}: {response.error_message}")
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
        if len(wanted) > MOST_RULES:
            return f"The access rules are not copied: they are more than {MOST_RULES}, one for each topic of a rule"
        # Rules that deny come first: what they forbid must not be allowed for a moment.
        ordered = sorted(dict.fromkeys(wanted), key=lambda acl: acl.permission)
        problem = ""
        for start in range(0, len(ordered), _CREATED_AT_ONCE):
            rows = [creation_of(acl) for acl in ordered[start : start + _CREATED_AT_ONCE]]
            decide = partial(_create, rows)
            response = await awaited(self._node.metadata.submit(decide))
            refused = (result.error_message or "" for result in response.results if result.error_code)
            problem = problem or next((f"An access rule is not copied: {text}" for text in refused), "")
        return problem


def _create(rows: list[AclCreation], controller: Controller) -> Slices[Outcome[CreateAclsResponse]]:
    return controller.create_acls(CreateAclsRequest(creations=rows))


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

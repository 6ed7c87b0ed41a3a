"""Access control lists: rules are created one by one, and deleted by filters. KIP-140, KIP-290, KIP-801.

A rule that exists already is created without a record. A request changes at most 10,000 rules: creating more fails with
POLICY_VIOLATION and deleting more with INVALID_REQUEST, both for the whole request, as in Kafka.

A record names the mirrors that have copied its rule. Such a rule is deleted when the last of their sources has deleted
it. A rule that a client has created, also as an equal of a copied one, belongs to no mirror. A rule has one record at
any time: to change the mirrors, one batch removes the record and adds another one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sized

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.common.slices import Slices
from ottla.controller.state import MAX_RECORDS_PER_REQUEST, Outcome, State, check_size, random_uuid, refuse
from ottla.metadata.acls import acl_of, created_acl, filter_of, record_of
from ottla.metadata.image import TOPIC
from ottla.metadata.mirrors import is_read_only
from ottla.protocol.message import Message
from ottla.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.metadata_records import RemoveAccessControlEntryRecord
from ottla.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)


def create(state: State, request: CreateAclsRequest, mirror: str = "") -> Slices[Outcome[CreateAclsResponse]]:
    """Create the rules that do not exist yet; each has its own error. `mirror` copies them, or a client creates them.

    Raises UNKNOWN_SERVER_ERROR, as Kafka does, for values that only filters may have. Kafka's clients cannot send them.
    """
    results = []
    wanted: dict[Acl, None] = {}
    acls = [created_acl(creation) for creation in request.creations]
    if any(map(_is_of_a_filter, acls)):
        refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "")
    for acl in acls:
        yield
        result = AclCreationResult(error_code=ErrorCode.NONE, error_message="")
        try:
            _check(acl)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            wanted[acl] = None
        results.append(result)
    names = {acl.pattern.name for acl in wanted}
    records: list[Message] = []
    mirrors: dict[Acl, list[str]] = {}
    for record in state.image.acls.values():
        yield
        if record.resource_name not in names or (acl := acl_of(record)) not in wanted:
            continue
        if record.mirrors and mirror not in record.mirrors:
            # The client's rule remains when the source's is deleted, and so does the rule of another mirror.
            records.append(RemoveAccessControlEntryRecord(id=record.id))
            mirrors[acl] = [*record.mirrors, mirror] if mirror else []
        else:
            del wanted[acl]
    check_size([*records, *wanted])
    by_default = [mirror] if mirror else []
    for acl in wanted:
        records.append(record_of(_new_id(state), acl, mirrors.get(acl, by_default)))
        yield
    return Outcome(records, CreateAclsResponse(results=results))


def outdated(
    state: State, mirror: str, wanted: Container[Acl], covers: Callable[[Acl], bool]
) -> Slices[Outcome[dict[Uuid, Acl]]]:
    """The rules that a mirror has copied and does not want any more, of those that it `covers` now, by their ids."""
    found = {}
    for acl_id, record in state.image.acls.items():
        yield
        if mirror in record.mirrors and (acl := acl_of(record)) not in wanted and covers(acl):
            found[acl_id] = acl
    return Outcome([], found)


def withdraw(state: State, mirror: str, acl_ids: Iterable[Uuid]) -> Slices[Outcome[None]]:
    """Delete rules that a mirror has copied, unless another mirror or a client needs them now.

    Rules of topics that have been promoted meanwhile belong to this cluster. Each rule takes up to two records.
    """
    records: list[Message] = []
    for acl_id in acl_ids:
        yield
        # With other mirrors, or as the rule of a client, the rule has another id.
        record = state.image.acls.get(acl_id)
        if record is None:
            continue
        acl = acl_of(record)
        topic = state.image.config(TOPIC, acl.pattern.name)
        if acl.pattern.resource_type == ResourceType.TOPIC and not is_read_only(topic):
            continue
        records.append(RemoveAccessControlEntryRecord(id=acl_id))
        others = [name for name in record.mirrors if name != mirror]
        if others:
            records.append(record_of(_new_id(state), acl, others))
    check_size(records)
    return Outcome(records, None)


def delete(state: State, request: DeleteAclsRequest) -> Slices[Outcome[DeleteAclsResponse]]:
    """Delete the rules that each filter selects; a filter may select none."""
    known: list[tuple[Uuid, Acl]] = []
    for acl_id, record in state.image.acls.items():
        known.append((acl_id, acl_of(record)))
        yield
    deleted: dict[Uuid, None] = {}
    results = []
    for requested in request.filters:
        selected = filter_of(requested)
        result = DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=[])
        problem = _problem_of(selected)
        if problem is not None:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, problem
        for acl_id, acl in known if problem is None else ():
            yield
            if selected.matches(acl):
                _check_count(deleted)
                deleted[acl_id] = None
                result.matching_acls.append(_matching(acl))
        results.append(result)
    records: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in deleted]
    return Outcome(records, DeleteAclsResponse(filter_results=results))


def _problem_of(selected: AclFilter) -> str | None:
    if selected.has_unknown_pattern:
        return "Unknown patternFilter."
    return "Unknown entryFilter." if selected.has_unknown_entry else None


def _check_count(deleted: Sized) -> None:
    """Raise INVALID_REQUEST before one more rule than the limit; a rule that two filters select counts once."""
    if len(deleted) >= MAX_RECORDS_PER_REQUEST:
        refuse(
            ErrorCode.INVALID_REQUEST,
            f"Cannot remove more than {MAX_RECORDS_PER_REQUEST} acls in a single delete operation.",
        )


def _new_id(state: State) -> Uuid:
    while True:
        acl_id = random_uuid(state.random)
        if acl_id not in state.image.acls:
            return acl_id


def _is_of_a_filter(acl: Acl) -> bool:
    return (
        acl.pattern.resource_type == ResourceType.ANY
        or acl.pattern.pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == Operation.ANY
        or acl.permission == PermissionType.ANY
    )


def _check(acl: Acl) -> None:
    """Raise INVALID_REQUEST with Kafka's message unless the rule can be created."""
    pattern = acl.pattern
    problem = None
    if pattern.resource_type == ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not pattern.name:
        problem = "Invalid empty resource name"
    elif pattern.resource_type == ResourceType.UNKNOWN:
        problem = f"Invalid resourceType {pattern.resource_type.name}"
    elif pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = f"Invalid patternType {pattern.pattern_type.name}"
    elif acl.operation == Operation.UNKNOWN:
        problem = f"Invalid operation {acl.operation.name}"
    elif acl.permission not in (PermissionType.ALLOW, PermissionType.DENY):
        problem = f"Invalid permissionType {acl.permission.name}"
    elif ":" not in acl.principal:
        problem = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from"
            " the principal name)"
        )
    if problem is not None:
        refuse(ErrorCode.INVALID_REQUEST, problem)


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )

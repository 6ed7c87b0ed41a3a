"""Access control lists of records, requests and responses as values, and values as records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.common.ids import Uuid
from ottla.protocol.metadata_records import AccessControlEntryRecord
from ottla.security.acl import Acl, AclFilter, Operation, Pattern, PatternType, PermissionType, ResourceType

if TYPE_CHECKING:
    from ottla.protocol.messages.create_acls import AclCreation
    from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl
    from ottla.protocol.messages.describe_acls import DescribeAclsRequest


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The rule of a record. A number of a later version becomes UNKNOWN."""
    return Acl(
        Pattern(ResourceType(record.resource_type), record.resource_name, PatternType(record.pattern_type)),
        record.principal,
        record.host,
        Operation(record.operation),
        PermissionType(record.permission_type),
    )


def record_of(acl_id: Uuid, acl: Acl, mirrors: Iterable[str] = ()) -> AccessControlEntryRecord:
    """The record that adds a rule, which `mirrors` have copied."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
        mirrors=list(mirrors),
    )


def created_acl(creation: AclCreation) -> Acl:
    """The rule that a request creates."""
    pattern = Pattern(
        ResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
    )
    operation, permission = Operation(creation.operation), PermissionType(creation.permission_type)
    return Acl(pattern, creation.principal, creation.host, operation, permission)


def deleted_acl(match: DeleteAclsMatchingAcl) -> Acl:
    """The rule that a response names as deleted."""
    pattern = Pattern(ResourceType(match.resource_type), match.resource_name, PatternType(match.pattern_type))
    operation, permission = Operation(match.operation), PermissionType(match.permission_type)
    return Acl(pattern, match.principal, match.host, operation, permission)


def filter_of(requested: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """The filter of a request."""
    return AclFilter(
        ResourceType(requested.resource_type_filter),
        requested.resource_name_filter,
        PatternType(requested.pattern_type_filter),
        requested.principal_filter,
        requested.host_filter,
        Operation(requested.operation),
        PermissionType(requested.permission_type),
    )

"""Access control lists of records, requests and responses as values, and values as records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.ids import Uuid
from ottla.protocol.metadata_records import AccessControlEntryRecord
from ottla.security.acl import Acl, AclFilter, Operation, Pattern, PatternType, PermissionType, ResourceType, enum_of

if TYPE_CHECKING:
    from ottla.protocol.messages.create_acls import AclCreation
    from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl
    from ottla.protocol.messages.describe_acls import DescribeAclsRequest


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The rule of a record. A number of a later version becomes UNKNOWN."""
    return Acl(
        Pattern(
            enum_of(ResourceType, record.resource_type), record.resource_name, enum_of(PatternType, record.pattern_type)
        ),
        record.principal,
        record.host,
        enum_of(Operation, record.operation),
        enum_of(PermissionType, record.permission_type),
    )


def record_of(acl_id: Uuid, acl: Acl) -> AccessControlEntryRecord:
    """The record that adds a rule."""
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.pattern.resource_type,
        resource_name=acl.pattern.name,
        pattern_type=acl.pattern.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def created_acl(creation: AclCreation) -> Acl:
    """The rule that a request creates."""
    pattern = Pattern(
        enum_of(ResourceType, creation.resource_type),
        creation.resource_name,
        enum_of(PatternType, creation.resource_pattern_type),
    )
    operation, permission = enum_of(Operation, creation.operation), enum_of(PermissionType, creation.permission_type)
    return Acl(pattern, creation.principal, creation.host, operation, permission)


def deleted_acl(match: DeleteAclsMatchingAcl) -> Acl:
    """The rule that a response names as deleted."""
    pattern = Pattern(
        enum_of(ResourceType, match.resource_type), match.resource_name, enum_of(PatternType, match.pattern_type)
    )
    operation, permission = enum_of(Operation, match.operation), enum_of(PermissionType, match.permission_type)
    return Acl(pattern, match.principal, match.host, operation, permission)


def filter_of(requested: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """The filter of a request."""
    return AclFilter(
        enum_of(ResourceType, requested.resource_type_filter),
        requested.resource_name_filter,
        enum_of(PatternType, requested.pattern_type_filter),
        requested.principal_filter,
        requested.host_filter,
        enum_of(Operation, requested.operation),
        enum_of(PermissionType, requested.permission_type),
    )

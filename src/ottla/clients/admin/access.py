"""Plans about access: ACLs (KIP-140, 290), SCRAM credentials (KIP-554), client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ottla.clients.admin.access_model import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    AclResourceType,
    PatternType,
    QuotaEntity,
    QuotaName,
    ScramCredential,
    ScramDeletion,
    ScramUpsertion,
)
from ottla.clients.admin.core import Call, Outcome, Plan, Route
from ottla.clients.errors import BrokerError, ConfigurationError, error_for
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from ottla.security import scram

SCRAM_NAMES: Final = {number: name for name, number in scram.NUMBERS.items()}
SALT_BYTES: Final = 24
EXACT, DEFAULT, ANY = 0, 1, 2
# The fields of QuotaEntity by Kafka's names.
QUOTA_FIELDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}


def _error(row: Any) -> BrokerError | None:
    return error_for(row.error_code, row.error_message) if row.error_code else None


# -- ACLs ------------------------------------------------------------------------------------------------------


def create(acls: Iterable[Acl]) -> Call[Acl, None]:
    def ask(keys: Sequence[Acl]) -> Message:
        return create_acls.CreateAclsRequest(
            [
                create_acls.AclCreation(
                    acl.resource.type,
                    acl.resource.name,
                    acl.resource.pattern,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission,
                )
                for acl in keys
            ]
        )

    def read(response: Any, keys: Sequence[Acl]) -> Iterator[tuple[Acl, BrokerError | None]]:
        # The response has one result per ACL, in the same order.
        for acl, row in zip(keys, response.results, strict=False):
            yield acl, _error(row)

    return Call(Route.CONTROLLER, list(dict.fromkeys(acls)), ask, read)


def describe(wanted: AclFilter) -> Call[AclFilter, list[Acl]]:
    def ask(_: Sequence[AclFilter]) -> Message:
        return describe_acls.DescribeAclsRequest(
            wanted.resource_type,
            wanted.resource_name,
            wanted.pattern,
            wanted.principal,
            wanted.host,
            wanted.operation,
            wanted.permission,
        )

    def read(response: Any, keys: Sequence[AclFilter]) -> Iterator[tuple[AclFilter, list[Acl] | BrokerError]]:
        yield keys[0], _error(response) or sorted(_described(response), key=str)

    return Call(Route.ANY, [wanted], ask, read)


def _described(response: describe_acls.DescribeAclsResponse) -> Iterator[Acl]:
    for row in response.resources:
        resource = AclResource(AclResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type))
        for acl in row.acls:
            yield Acl(
                resource, acl.principal, AclOperation(acl.operation), AclPermission(acl.permission_type), acl.host
            )


def delete(filters: Iterable[AclFilter | Acl]) -> Call[AclFilter, tuple[Acl, ...]]:
    def ask(keys: Sequence[AclFilter]) -> Message:
        return delete_acls.DeleteAclsRequest(
            [
                delete_acls.DeleteAclsFilter(
                    key.resource_type,
                    key.resource_name,
                    key.pattern,
                    key.principal,
                    key.host,
                    key.operation,
                    key.permission,
                )
                for key in keys
            ]
        )

    def read(response: Any, keys: Sequence[AclFilter]) -> Iterator[tuple[AclFilter, tuple[Acl, ...] | BrokerError]]:
        for key, row in zip(keys, response.filter_results, strict=False):
            failed = next((error for match in row.matching_acls if (error := _error(match))), None)
            yield key, _error(row) or failed or tuple(_deleted(match) for match in row.matching_acls)

    keys = [each if isinstance(each, AclFilter) else AclFilter.exactly(each) for each in filters]
    return Call(Route.CONTROLLER, list(dict.fromkeys(keys)), ask, read)


def _deleted(row: delete_acls.DeleteAclsMatchingAcl) -> Acl:
    resource = AclResource(AclResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type))
    return Acl(resource, row.principal, AclOperation(row.operation), AclPermission(row.permission_type), row.host)


# -- SCRAM -----------------------------------------------------------------------------------------------------


def describe_scram(users: Iterable[str] | None) -> Plan[dict[str, tuple[ScramCredential, ...]]]:
    module = describe_user_scram_credentials
    wanted = None if users is None else list(dict.fromkeys(users))

    def ask(keys: Sequence[str]) -> Message:
        return module.DescribeUserScramCredentialsRequest(
            None if wanted is None else [module.UserName(user) for user in keys]
        )

    def rows(response: Any) -> Iterator[tuple[str, tuple[ScramCredential, ...] | BrokerError]]:
        for row in response.results:
            infos = [
                ScramCredential(SCRAM_NAMES.get(info.mechanism, "UNKNOWN"), info.iterations)
                for info in row.credential_infos
            ]
            yield row.user, _error(row) or tuple(sorted(infos, key=lambda info: info.mechanism))

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
        error = _error(response)
        if error is not None:
            yield from ((key, error) for key in keys)
        elif wanted is None:
            yield keys[0], dict(rows(response))
        else:
            yield from rows(response)

    if wanted is None:
        return (yield Call(Route.CONTROLLER, ["all users"], ask, read)).one()  # type: ignore[no-any-return]
    return (yield Call(Route.CONTROLLER, wanted, ask, read)).all()


def alter_scram(changes: Iterable[ScramUpsertion | ScramDeletion], salts: Iterator[bytes]) -> Plan[Outcome[str, None]]:
    """Set and delete credentials by user. `salts` serve changes without a salt. Raises ConfigurationError.

    A request may contain one change per user, so the number of calls is the most changes of one user.
    """
    by_user: dict[str, list[Any]] = {}
    for change in changes:
        by_user.setdefault(change.user, []).append(_scram_row(change, salts))
    outcome: Outcome[str, None] = Outcome({}, {})
    while by_user:
        rows = {user: left.pop(0) for user, left in by_user.items()}
        part = yield _alter_scram_once(rows)
        outcome.errors.update(part.errors)
        outcome.results.update(part.results)
        by_user = {user: left for user, left in by_user.items() if left and user not in outcome.errors}
    for user in outcome.errors:
        outcome.results.pop(user, None)
    return outcome


def _scram_row(change: ScramUpsertion | ScramDeletion, salts: Iterator[bytes]) -> Any:
    number = scram.NUMBERS.get(change.mechanism)
    if number is None:
        raise ConfigurationError(f"{change.mechanism!r} is not one of {', '.join(scram.NUMBERS)}")
    if isinstance(change, ScramDeletion):
        return alter_user_scram_credentials.ScramCredentialDeletion(change.user, number)
    least, most = scram.MIN_ITERATIONS, scram.MAX_STORED_ITERATIONS
    if not least <= change.iterations <= most:
        raise ConfigurationError(f"{change.iterations} iterations: brokers take {least} to {most}")
    salt = next(salts) if change.salt is None else change.salt
    salted = scram.salted_password(change.mechanism, change.password, salt, change.iterations)
    return alter_user_scram_credentials.ScramCredentialUpsertion(change.user, number, change.iterations, salt, salted)


def _alter_scram_once(rows: Mapping[str, Any]) -> Call[str, None]:
    module = alter_user_scram_credentials

    def ask(keys: Sequence[str]) -> Message:
        chosen = [rows[key] for key in keys]
        return module.AlterUserScramCredentialsRequest(
            [row for row in chosen if isinstance(row, module.ScramCredentialDeletion)],
            [row for row in chosen if isinstance(row, module.ScramCredentialUpsertion)],
        )

    def read(response: Any, _: object) -> Iterator[tuple[str, BrokerError | None]]:
        for row in response.results:
            yield row.user, _error(row)

    return Call(Route.CONTROLLER, list(rows), ask, read)


# -- quotas ----------------------------------------------------------------------------------------------------


def _parts(entity: QuotaEntity) -> Iterator[tuple[str, str | QuotaName]]:
    for kind, name in QUOTA_FIELDS.items():
        value = getattr(entity, name)
        if value is not None:
            yield kind, value


def _entity(rows: Iterable[Any]) -> QuotaEntity:
    names = {
        QUOTA_FIELDS[row.entity_type]: QuotaName.DEFAULT if row.entity_name is None else row.entity_name
        for row in rows
        if row.entity_type in QUOTA_FIELDS
    }
    return QuotaEntity(**names)


def describe_quotas(wanted: QuotaEntity, strict: bool) -> Call[QuotaEntity, dict[QuotaEntity, dict[str, float]]]:
    module = describe_client_quotas

    def component(kind: str, value: str | QuotaName) -> describe_client_quotas.ComponentData:
        if isinstance(value, QuotaName):
            return module.ComponentData(kind, DEFAULT if value is QuotaName.DEFAULT else ANY, None)
        return module.ComponentData(kind, EXACT, value)

    def ask(_: object) -> Message:
        return module.DescribeClientQuotasRequest([component(*part) for part in _parts(wanted)], strict)

    def read(
        response: Any, keys: Sequence[QuotaEntity]
    ) -> Iterator[tuple[QuotaEntity, dict[QuotaEntity, dict[str, float]] | BrokerError]]:
        found = {
            _entity(row.entity): {value.key: value.value for value in row.values} for row in response.entries or ()
        }
        yield keys[0], _error(response) or found

    return Call(Route.ANY, [wanted], ask, read)


def alter_quotas(
    changes: Mapping[QuotaEntity, Mapping[str, float | None]], validate_only: bool
) -> Call[QuotaEntity, None]:
    """Set quotas, or delete them with None. Raises ConfigurationError."""
    module = alter_client_quotas

    def entry(entity: QuotaEntity) -> alter_client_quotas.RequestEntryData:
        rows = [
            module.RequestEntityData(kind, None if value is QuotaName.DEFAULT else str(value))
            for kind, value in _parts(entity)
        ]
        ops = [module.OpData(key, value or 0.0, value is None) for key, value in changes[entity].items()]
        return module.RequestEntryData(rows, ops)

    def ask(keys: Sequence[QuotaEntity]) -> Message:
        return module.AlterClientQuotasRequest([entry(key) for key in keys], validate_only)

    def read(response: Any, _: object) -> Iterator[tuple[QuotaEntity, BrokerError | None]]:
        for row in response.entries:
            yield _entity(row.entity), _error(row)

    for entity in changes:
        if not any(True for _ in _parts(entity)) or QuotaName.ANY in (entity.user, entity.client_id, entity.ip):
            raise ConfigurationError(f"{entity} does not name a user, client id or IP address whose quota can change")
    return Call(Route.CONTROLLER, list(changes), ask, read)

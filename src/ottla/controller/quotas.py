"""Client quotas of users, client ids and IP addresses. KIP-546, KIP-599, KIP-612.

Each entity of a request changes completely or not at all. Unlike in Kafka, an IP entity is an address, not a host name:
the controller does not resolve names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.controller.state import Outcome, State, check_size, refuse
from ottla.metadata.image import CLIENT_ID, IP, USER, QuotaEntity
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntityData,
    ResponseEntityData,
    ResponseEntryData,
)

# The largest value of each quota; None: any positive number, also a fraction.
_OF_USERS_AND_CLIENTS: Mapping[str, tuple[str, int] | None] = {
    "producer_byte_rate": ("LONG", 2**63),
    "consumer_byte_rate": ("LONG", 2**63),
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_OF_ADDRESSES: Mapping[str, tuple[str, int] | None] = {"connection_creation_rate": ("INT", 2**31 - 1)}
_MOST_FRACTION = 1e-6

_Names: TypeAlias = dict[str, str | None]
"""The names of an entity by type; None stands for all entities without a quota of their own."""


def alter(state: State, request: AlterClientQuotasRequest) -> Slices[Outcome[AlterClientQuotasResponse]]:
    """Set and remove quotas. As in Kafka, an entity that appears again gets an error; its first change is made."""
    records: list[Message] = []
    results: dict[QuotaEntity, ResponseEntryData] = {}
    for entry in request.entries:
        yield
        names = _names(entry.entity)
        entity: QuotaEntity = tuple(sorted(names.items(), key=lambda item: item[0]))
        result = ResponseEntryData(ErrorCode.NONE, None, [ResponseEntityData(*part) for part in names.items()])
        try:
            operations = {operation.key: operation for operation in entry.ops}
            if entity in results or len(operations) < len(entry.ops):
                shown = ", ".join(f"{kind}={name}" for kind, name in names.items())
                text = f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})"
                refuse(ErrorCode.INVALID_REQUEST, text.replace("=None", "=null"))
            records += _records(state, names, entity, operations.values())
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results[entity] = result
        check_size(records)
    response = AlterClientQuotasResponse(entries=list(results.values()))
    return Outcome([] if request.validate_only else records, response)


def _names(parts: Iterable[RequestEntityData]) -> _Names:
    return {part.entity_type: part.entity_name for part in parts}


def _records(state: State, names: _Names, entity: QuotaEntity, operations: Iterable[OpData]) -> list[Message]:
    """Return the records of the values that change. Raises INVALID_REQUEST."""
    limits = _limits(names)
    present = state.image.client_quotas.get(entity, {})
    records: list[Message] = []
    for operation in operations:
        key = operation.key
        if not operation.remove:
            _check_value(limits, key, operation.value)
        if (key in present) if operation.remove else (present.get(key) != operation.value):
            parts = [m.EntityData(kind, name) for kind, name in names.items()]
            value = 0.0 if operation.remove else operation.value
            records.append(m.ClientQuotaRecord(entity=parts, key=key, value=value, remove=operation.remove))
    return records


def _limits(names: _Names) -> Mapping[str, tuple[str, int] | None]:
    """Return the quotas that an entity can have. Raises INVALID_REQUEST for an entity that cannot have any."""
    if not names:
        refuse(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            refuse(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            refuse(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP not in names:
        return _OF_USERS_AND_CLIENTS
    if len(names) > 1:
        # The missing space is Kafka's.
        text = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        refuse(ErrorCode.INVALID_REQUEST, text)
    address = names[IP]
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            refuse(ErrorCode.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")
    return _OF_ADDRESSES


def _check_value(limits: Mapping[str, tuple[str, int] | None], key: str, value: float) -> None:
    """Raise INVALID_REQUEST for an unknown quota or a value that it cannot have."""
    if key not in limits:
        refuse(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if value <= 0:
        refuse(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    limit = limits[key]
    if limit is None:
        return
    kind, most = limit
    if value > most:
        article = "an" if kind == "INT" else "a"
        refuse(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {article} {kind}.")
    if value % 1 > _MOST_FRACTION:
        refuse(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")

"""Settings of topics, brokers, groups and client metrics: replaced together (AlterConfigs) or one by one (KIP-339).

Each resource changes completely or not at all. The resources of a request are independent of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import validate_topic_name
from ottla.common.slices import Slices
from ottla.controller import late
from ottla.controller.leaders import MIN_ISR_SETTING
from ottla.controller.state import Outcome, State, check_size, refuse
from ottla.metadata.features import CORDONED_FROM, ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, MIRROR, TOPIC
from ottla.metadata.mirrors import MIRROR_SETTING, STATE_SETTING, is_read_only
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages import alter_configs as legacy
from ottla.protocol.messages import incremental_alter_configs as incremental

R = TypeVar("R", legacy.AlterConfigsResource, incremental.AlterConfigsResource)
A = TypeVar("A", legacy.AlterConfigsResourceResponse, incremental.AlterConfigsResourceResponse)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CORDONED = "cordoned.log.dirs"
_MAX_ID_DIGITS = 10
_KINDS = {TOPIC, BROKER, CLIENT_METRICS, GROUP, MIRROR}
_OPERATION_NAMES = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def incremental_alter(
    state: State, request: incremental.IncrementalAlterConfigsRequest, *, is_direct: bool
) -> Slices[Outcome[incremental.IncrementalAlterConfigsResponse]]:
    """Set, delete, append to and subtract from single settings."""
    answer = incremental.AlterConfigsResourceResponse
    records, responses = yield from _alter(state, request.resources, _changes, answer, is_direct=is_direct)
    return Outcome(
        [] if request.validate_only else records, incremental.IncrementalAlterConfigsResponse(responses=responses)
    )


def alter(
    state: State, request: legacy.AlterConfigsRequest, *, is_direct: bool
) -> Slices[Outcome[legacy.AlterConfigsResponse]]:
    """Replace all settings of a resource; settings that the request does not name are deleted."""
    answer = legacy.AlterConfigsResourceResponse
    records, responses = yield from _alter(state, request.resources, _replacement, answer, is_direct=is_direct)
    return Outcome([] if request.validate_only else records, legacy.AlterConfigsResponse(responses=responses))


def _alter(
    state: State,
    resources: Sequence[R],
    changes_of: Callable[[State, R], dict[str, str | None]],
    answer_type: type[A],
    *,
    is_direct: bool,
) -> Slices[tuple[list[Message], list[A]]]:
    """Return the records of the resources that may change so, and the answer for each resource."""
    records: list[Message] = []
    answers = []
    count: Counter[tuple[int, str]] = Counter()
    for resource in resources:
        count[resource.resource_type, resource.resource_name] += 1
        yield
    for resource in resources:
        yield
        kind, name = resource.resource_type, resource.resource_name
        answer = answer_type(error_code=ErrorCode.NONE, error_message=None, resource_type=kind, resource_name=name)
        try:
            if count[kind, name] > 1:
                refuse(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            changes = changes_of(state, resource)
            _check_cordoned(state, resource, changes, is_direct=is_direct)
            records += _records(state, kind, name, changes)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
        check_size(records)
    return records, answers


def _check_names(names: Sequence[str], nulls: Sequence[str]) -> None:
    """Raise INVALID_REQUEST if a setting appears twice, or has no value."""
    if len(set(names)) < len(names):
        refuse(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        refuse(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _changes(state: State, resource: incremental.AlterConfigsResource) -> dict[str, str | None]:
    """Return the new value of each named setting; None deletes it."""
    check_size(resource.configs)
    nulls = [c.name for c in resource.configs if c.value is None and c.config_operation != DELETE]
    _check_names([config.name for config in resource.configs], nulls)
    if resource.resource_type not in _KINDS:
        refuse(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    current = state.image.config(resource.resource_type, resource.resource_name)
    changes: dict[str, str | None] = {}
    for config in resource.configs:
        operation = config.config_operation
        if operation == SET:
            changes[config.name] = config.value
        elif operation == DELETE:
            changes[config.name] = None
        elif operation in (APPEND, SUBTRACT):
            _check_list(state, resource.resource_type, config)
            before = current.get(config.name)
            if before is None:
                before = state.rules.default(resource.resource_type, config.name) or ""
            changes[config.name] = _edit_list(before, config.value or "", operation)
        else:
            refuse(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    return changes


def _check_list(state: State, kind: int, config: incremental.AlterableConfig) -> None:
    """Raise INVALID_CONFIG unless the setting is a list, with Kafka's message, which differs for brokers."""
    is_list = state.rules.is_list(kind, config.name)
    if is_list:
        return
    operation = _OPERATION_NAMES[config.config_operation]
    if kind != BROKER:
        problem = f"Can't {operation} to key {config.name} because its type is not LIST."
    elif is_list is None:
        problem = f"Unknown config name: {config.name}"
    else:
        problem = f"Config value {operation.lower()} is not allowed for config key: {config.name}"
    refuse(ErrorCode.INVALID_CONFIG, problem)


def _edit_list(before: str, value: str, operation: int) -> str:
    parts = dict.fromkeys(part.strip() for part in before.split(",") if part.strip())
    items = [item.strip() for item in value.split(",") if item.strip()]
    if operation == APPEND:
        return ",".join(parts | dict.fromkeys(items))
    taken = set(items)
    return ",".join(part for part in parts if part not in taken)


def _replacement(state: State, resource: legacy.AlterConfigsResource) -> dict[str, str | None]:
    check_size(resource.configs)
    nulls = [config.name for config in resource.configs if config.value is None]
    _check_names([config.name for config in resource.configs], nulls)
    changes: dict[str, str | None] = {config.name: config.value for config in resource.configs}
    for name in state.image.config(resource.resource_type, resource.resource_name):
        changes.setdefault(name, None)
    return changes


def _check_cordoned(
    state: State,
    resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource,
    changes: Mapping[str, str | None],
    *,
    is_direct: bool,
) -> None:
    """Raise INVALID_CONFIG if `cordoned.log.dirs` cannot be changed so. KIP-1066.

    The controller does not know the paths of a broker's directories. If no broker has checked the change, it can only
    remove directories from the setting.
    """
    if resource.resource_type != BROKER or CORDONED not in changes:
        return
    if state.image.metadata_version < CORDONED_FROM:
        refuse(
            ErrorCode.INVALID_CONFIG,
            f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
        )
    present = _items(state.image.config(BROKER, resource.resource_name).get(CORDONED))
    if is_direct and not _items(changes[CORDONED]) <= present:
        refuse(
            ErrorCode.INVALID_CONFIG,
            f"When updating {CORDONED} via controllers,  the new value must be a subset of the current configuration"
            " value.",
        )


def _items(text: str | None) -> set[str]:
    return {each for item in (text or "").split(",") if (each := item.strip())}


def _records(state: State, kind: int, name: str, changes: Mapping[str, str | None]) -> list[Message]:
    current = state.image.config(kind, name)
    after = dict(current)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    validate(state, kind, name, after, frozenset(changes), is_new=False)
    if kind == TOPIC and MIRROR_SETTING in current:
        late.mirrors.check_copied_settings(name, current, changes)
    if kind == TOPIC and not changes.keys().isdisjoint((MIRROR_SETTING, STATE_SETTING)):
        late.mirrors.check_client_change(state, name, current, after)
    records: list[Message] = [
        m.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        for key, value in changes.items()
        # A broker's setting is written even if it does not change, because that reloads files that it names.
        if current.get(key) != value or kind == BROKER
    ]
    return records + _elr_records(state, kind, name, records)


def _elr_records(state: State, kind: int, name: str, records: list[Message]) -> list[Message]:
    """Return the records that a change of min.insync.replicas adds if eligible leader replicas are enabled (KIP-966).

    Such replicas were selected with the old number. Kafka requires the number at cluster level.
    """
    changes = [r for r in records if isinstance(r, m.ConfigRecord) and r.name == MIN_ISR_SETTING]
    if not changes or state.image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) < 1:
        return []
    if kind == BROKER and name:
        refuse(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR_SETTING} cannot be altered while ELR is enabled.")
    if kind == BROKER and changes[-1].value is None:
        refuse(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR_SETTING} cannot be removed while ELR is enabled.")
    return [m.ClearElrRecord(topic_name=name if kind == TOPIC else "")]


def validate(
    state: State, kind: int, name: str, configs: Mapping[str, str], changed: frozenset[str], *, is_new: bool
) -> None:
    """Raise KafkaError unless the resource exists, or is about to be created, and may have these settings."""
    if kind == TOPIC:
        if not name:
            refuse(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        validate_topic_name(name)
    elif kind == BROKER:
        _validate_broker_name(state, name)
    elif kind == GROUP:
        if not name:
            refuse(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    elif kind == CLIENT_METRICS:
        if not name:
            refuse(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    elif kind == MIRROR:
        _validate_mirror(state, name, configs)
    else:
        refuse(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    own, cluster = state.image.config(BROKER, str(state.node_id)), state.image.config(BROKER, "")
    state.rules.validate(kind, name, configs, changed, own, cluster)
    if kind == TOPIC and not is_new and name not in state.image.topics_by_name:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _validate_mirror(state: State, name: str, configs: Mapping[str, str]) -> None:
    """Raise KafkaError for a mirror without a name, one that topics need, and a prefix that it may not have."""
    if not name:
        refuse(ErrorCode.INVALID_REQUEST, "A mirror needs a name")
    if configs:
        late.mirrors.check_prefix(state, name, configs)
        return
    for (kind, topic), settings in state.image.configs.items():
        if kind == TOPIC and settings.get(MIRROR_SETTING) == name and is_read_only(settings):
            refuse(
                ErrorCode.POLICY_VIOLATION,
                f"Topic {topic} of mirror {name} was not promoted: promote it, or exclude it and delete it",
            )


def _validate_broker_name(state: State, name: str) -> None:
    if not name:
        return
    # A name may be 32,767 characters long, and Python does not convert more than 4,300 digits.
    digits = name.lstrip("0") or "0"
    if not name.isdecimal() or len(digits) > _MAX_ID_DIGITS or int(digits) >= 1 << 31:
        refuse(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    if int(digits) != state.node_id and int(digits) not in state.image.brokers:
        refuse(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")

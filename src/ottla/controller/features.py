"""Finalized feature levels: upgrade, downgrade, dry run. KIP-584, KIP-778, KIP-1022.

If stock Kafka finalized a level above the served one, it stays until an administrator lowers it. Such a downgrade is
compared with the finalized level, not with the served level that clients receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.leaders import MIN_ISR_SETTING
from ottla.controller.state import Outcome, State, refuse
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    served_level,
)
from ottla.metadata.image import BROKER
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages.update_features import UpdatableFeatureResult, UpdateFeaturesResponse

if TYPE_CHECKING:
    from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
# Metadata versions that changed records. A downgrade below such a version may lose metadata.
_CHANGED_RECORDS = frozenset({7, 8, 11, 13, 14, 17, 19, 23, 24, 26, 30})
RESULTS_UNTIL_VERSION = 1


def update(
    state: State, request: UpdateFeaturesRequest, api_version: int, kraft_version: int
) -> Outcome[UpdateFeaturesResponse]:
    """Change all named features, or none if a change is invalid.

    The quorum changes kraft.version itself. Its change is checked here, against the present level `kraft_version`.
    """
    levels = {**state.image.features, KRAFT_VERSION: kraft_version}
    names = [item.feature for item in request.feature_updates]
    if len(set(names)) < len(names):
        refuse(ErrorCode.INVALID_REQUEST, "Each feature must appear at most once.")
    records: list[Message] = []
    for item in request.feature_updates:
        try:
            records += _update(state, item, api_version, levels.get(item.feature, 0))
        except KafkaError as error:
            message = f"The update failed for all features since the following feature had an error: {error.message}"
            return Outcome([], UpdateFeaturesResponse(error_code=error.code, error_message=message))
    response = UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    if api_version <= RESULTS_UNTIL_VERSION:
        response.results = [
            UpdatableFeatureResult(feature=name, error_code=ErrorCode.NONE, error_message=None) for name in names
        ]
    return Outcome([] if request.validate_only else records, response)


def _update(state: State, item: FeatureUpdateKey, api_version: int, current: int) -> list[Message]:
    name, level = item.feature, item.max_version_level
    upgrade_type = item.upgrade_type
    if api_version == 0:
        upgrade_type = SAFE_DOWNGRADE if item.allow_downgrade else UPGRADE
    problem = _problem(state, name, level, current, upgrade_type)
    if problem is not None:
        refuse(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {problem}")
    if name == KRAFT_VERSION:
        return []
    if name == METADATA_VERSION:
        _check_metadata_version(level, current, upgrade_type)
    if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level > current:
        return [*_eligible_leader_records(state), m.FeatureLevelRecord(name=name, feature_level=level)]
    return [m.FeatureLevelRecord(name=name, feature_level=level)] if level != current else []


def _problem(state: State, name: str, level: int, current: int, upgrade_type: int) -> str | None:
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    unsupported = _unsupported(state, name, level)
    if unsupported is not None:
        return unsupported
    if level < current and upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level > current and upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    if level < current and name == KRAFT_VERSION:
        return "Can't downgrade the version of this feature."
    return None


def _unsupported(state: State, name: str, level: int) -> str | None:
    """Return why some node does not support the level, or None."""
    who = f"Local controller {state.node_id}"
    if name not in SUPPORTED_FEATURES:
        return f"{who} does not support this feature." if level else f"Feature {name} not found."
    if level == 0 and name not in (METADATA_VERSION, KRAFT_VERSION):
        return None
    low, high = SUPPORTED_FEATURES[name]
    if not low <= level <= high:
        return f"{who} only supports versions {low}-{high}"
    for broker in state.image.brokers.values():
        ranges = {feature: (first, last) for feature, first, last in broker.features}
        first, last = ranges.get(name, (0, 0))
        if not first <= level <= last:
            return f"Broker {broker.broker_id} only supports versions {first}-{last}"
    for controller in state.image.controllers.values():
        found = {each.name: (each.min_supported_version, each.max_supported_version) for each in controller.features}
        first, last = found.get(name, (0, 0))
        if controller.controller_id != state.node_id and not first <= level <= last:
            return f"Controller {controller.controller_id} only supports versions {first}-{last}"
    return None


def _check_metadata_version(level: int, current: int, upgrade_type: int) -> None:
    if level not in METADATA_VERSION_NAMES:
        refuse(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid metadata.version {level}. Unknown metadata.version.")
    if any(level < changed <= current for changed in _CHANGED_RECORDS):
        problem = "Refusing to perform the requested downgrade because it might delete metadata information."
        if upgrade_type == UNSAFE_DOWNGRADE:
            problem = "Unsafe metadata downgrade is not supported in this version."
        text = f"Unsupported metadata.version downgrade from {current} to {level}. {problem}"
        refuse(ErrorCode.INVALID_UPDATE_VERSION, text)


def first_records(state: State, records: Sequence[Message]) -> list[Message]:
    """Return the records of a new cluster: those that it was formatted with, and what their feature levels need."""
    levels = {each.name: each.feature_level for each in records if isinstance(each, m.FeatureLevelRecord)}
    configs = {each.name for each in records if isinstance(each, m.ConfigRecord) and each.resource_name == ""}
    if not levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION) or MIN_ISR_SETTING in configs:
        return [*records]
    return [*records, *_eligible_leader_records(state)]


def _eligible_leader_records(state: State) -> list[Message]:
    """Return the records that make it safe to enable eligible leader replicas (KIP-966).

    Leaders and the controller must apply the same min.insync.replicas to a topic. Therefore the value in this node's
    file becomes the cluster's, unless the cluster has one, and values of single brokers are removed.
    """
    changes: dict[str, str | None] = {
        name: None
        for (kind, name), configs in sorted(state.image.configs.items())
        if kind == BROKER and name and MIN_ISR_SETTING in configs
    }
    if MIN_ISR_SETTING not in state.image.config(BROKER, ""):
        changes[""] = state.rules.default(BROKER, MIN_ISR_SETTING) or "1"
    return [
        m.ConfigRecord(resource_type=BROKER, resource_name=name, name=MIN_ISR_SETTING, value=value)
        for name, value in changes.items()
    ]


def check(state: State) -> dict[str, tuple[int, int]]:
    """Return the features whose finalized level is above the served one: name to (finalized, served).

    Raises UNSUPPORTED_VERSION for a metadata.version that this software cannot read.
    """
    low, high = SUPPORTED_FEATURES[METADATA_VERSION]
    level = state.image.metadata_version
    if not low <= level <= high:
        age = "newer" if level > high else "older"
        direction = "downgrade" if level > high else "upgrade"
        refuse(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {level} is not among {low} to {high}, which this software can read: {age} software wrote"
            f" this directory. Open it with that software and change the level there (kafka-features.sh {direction}"
            f" --metadata {METADATA_VERSION_NAMES[high]}), or use another directory",
        )
    levels = state.image.features.items()
    return {name: (level, served_level(name, level)) for name, level in levels if level > served_level(name, level)}

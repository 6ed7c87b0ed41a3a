"""UpdateFeatures (57), versions 0-2: upgrade, downgrade or only validate finalized features. KIP-584, KIP-778, KIP-853.

The quorum itself changes kraft.version, the controller all others. Both are validated before either is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.metadata.features import KRAFT_VERSION
from ottla.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata
    from ottla.protocol.messages.update_features import FeatureUpdateKey

RESULTS_UNTIL_VERSION = 1


def handle(
    broker: HasMetadata, context: RequestContext, request: UpdateFeaturesRequest
) -> Slices[UpdateFeaturesResponse]:
    """Change all requested features, or none."""
    asked = [item for item in request.feature_updates if item.feature == KRAFT_VERSION]
    try:
        if len(asked) == 1:
            return (yield from _with_quorum(broker, context.api_version, request, asked[0]))
        return (yield from _update(broker, context.api_version, request))
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


def _update(broker: HasMetadata, version: int, request: UpdateFeaturesRequest) -> Slices[UpdateFeaturesResponse]:
    return (
        yield from result_of(broker.metadata.submit(lambda controller: controller.update_features(request, version)))
    )


def _with_quorum(
    broker: HasMetadata, version: int, request: UpdateFeaturesRequest, asked: FeatureUpdateKey
) -> Slices[UpdateFeaturesResponse]:
    others = [item for item in request.feature_updates if item is not asked]
    rest = UpdateFeaturesRequest(feature_updates=others, validate_only=True)
    response = yield from _update(broker, version, rest)
    if response.error_code:
        return response
    upgrade = broker.metadata.quorum.upgrade(asked.max_version_level, validate_only=request.validate_only)
    changed = yield from result_of(upgrade)
    if changed.error is not ErrorCode.NONE:
        text = f"The update failed for all features since the following feature had an error: {changed.message}"
        return UpdateFeaturesResponse(error_code=changed.error, error_message=text)
    if others and not request.validate_only:
        rest.validate_only = False
        response = yield from _update(broker, version, rest)
    if version <= RESULTS_UNTIL_VERSION and not response.error_code:
        done = UpdatableFeatureResult(feature=KRAFT_VERSION, error_code=ErrorCode.NONE, error_message=None)
        response.results.append(done)
    return response

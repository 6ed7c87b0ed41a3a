"""UpdateFeatures (57), versions 0-2: upgrade, downgrade or only validate finalized features. KIP-584, KIP-778, KIP-853.

The quorum itself changes kraft.version, the controller all others. Both are validated before either is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.metadata.features import KRAFT_VERSION
from ottla.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, context: RequestContext, request: UpdateFeaturesRequest
) -> Slices[UpdateFeaturesResponse]:
    """Change all requested features, or none."""
    asked = [item.max_version_level for item in request.feature_updates if item.feature == KRAFT_VERSION]
    try:
        if asked:
            problem = yield from _with_quorum(broker, context.api_version, request, asked[0])
            if problem is not None:
                return problem
        return (yield from _update(broker, context.api_version, request))
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


def _update(broker: HasMetadata, version: int, request: UpdateFeaturesRequest) -> Slices[UpdateFeaturesResponse]:
    metadata = broker.metadata
    return (
        yield from result_of(
            metadata.submit(
                lambda controller: controller.update_features(request, version, metadata.raft.kraft_version)
            )
        )
    )


def _with_quorum(
    broker: HasMetadata, version: int, request: UpdateFeaturesRequest, level: int
) -> Slices[UpdateFeaturesResponse | None]:
    """Change kraft.version if the whole request is valid; return the response if it is not."""
    rest = UpdateFeaturesRequest(feature_updates=request.feature_updates, validate_only=True)
    response = yield from _update(broker, version, rest)
    if response.error_code:
        return response
    upgrade = broker.metadata.quorum.upgrade(level, validate_only=request.validate_only)
    changed = yield from result_of(upgrade)
    if changed.error is ErrorCode.NONE:
        return None
    text = f"The update failed for all features since the following feature had an error: {changed.message}"
    return UpdateFeaturesResponse(error_code=changed.error, error_message=text)

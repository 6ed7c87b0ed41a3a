"""UpdateFeatures (57), versions 0-2: upgrade, downgrade or only validate finalized features. KIP-584, KIP-778."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, context: RequestContext, request: UpdateFeaturesRequest
) -> Completion[UpdateFeaturesResponse]:
    """Change all requested features, or none."""

    def failed(error: KafkaError) -> UpdateFeaturesResponse:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)

    version = context.api_version
    return broker.metadata.submit(lambda controller: controller.update_features(request, version)).otherwise(failed)

"""ApiVersions (18), versions 0-4: what this broker serves, and its features.

KIP-511 (client software name), KIP-584 (features). A version that we do not know is answered by the dispatcher, in
version 0. Produce is advertised from version 0, which is not served: librdkafka stops compressing otherwise
(KAFKA-18659).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.broker.served import SERVED
from ottla.common.errors import ErrorCode
from ottla.protocol.frames import Encoded
from ottla.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.metadata.image import MetadataImage

PRODUCE = 0
SOFTWARE_SINCE_VERSION = 3
# Version 4 fixed how a minimum of 0 is understood: older clients do not see such features (KAFKA-17011).
ZERO_MINIMUM_SINCE_VERSION = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse | Encoded:
    """List the served APIs; INVALID_REQUEST if the client's software name or version is malformed."""
    if context.api_version >= SOFTWARE_SINCE_VERSION:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software_name = name
        context.connection.software_version = version
    # Each new connection asks, and a storm of them must not hold up the others.
    image, question = broker.metadata.image, ("ApiVersions", context.api_version)
    answer = broker.kept_answers.get(image, question)
    if answer is None:
        answer = Encoded(_describe(broker, context.api_version, image), context.api_version)
        broker.kept_answers.keep(image, question, answer)
    return answer


def _describe(broker: Broker, version: int, image: MetadataImage) -> ApiVersionsResponse:
    supported = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in broker.supported_features.items()
        if low > 0 or version >= ZERO_MINIMUM_SINCE_VERSION
    ]
    finalized = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in image.features.items()
        if level > 0
    ]
    return ApiVersionsResponse(
        api_keys=served_apis(),
        supported_features=supported,
        finalized_features_epoch=image.offset,
        finalized_features=finalized,
    )


def served_apis() -> list[ApiVersion]:
    """Every API that this broker serves, with its versions."""
    return [
        ApiVersion(api_key=key, min_version=0 if key == PRODUCE else low, max_version=high)
        for key, (low, high) in SERVED.items()
    ]

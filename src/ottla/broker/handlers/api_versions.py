"""ApiVersions (18), versions 0-4: the APIs and features that this broker serves.

KIP-511 (client software name), KIP-584 (features; a finalized level above the served one is reported as the served
one). The dispatcher answers an unknown version, in version 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.served import CONTROLLER_SERVED, SERVED, SERVED_WITH_TELEMETRY, api_rows
from ottla.common.errors import ErrorCode
from ottla.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES, served_level
from ottla.network.connection import SOFTWARE_NAME, SOFTWARE_VERSION
from ottla.protocol.frames import Encoded
from ottla.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ApiVersionsPorts
    from ottla.metadata.image import MetadataImage

SOFTWARE_SINCE_VERSION = 3
# Version 4 fixed how a minimum of 0 is understood: older clients do not see such features (KAFKA-17011).
ZERO_MINIMUM_SINCE_VERSION = 4
_SOFTWARE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"


def handle(
    broker: ApiVersionsPorts, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse | Encoded:
    """List the served APIs; INVALID_REQUEST if the client's software name or version is malformed."""
    if context.api_version >= SOFTWARE_SINCE_VERSION:
        name, version = request.client_software_name, request.client_software_version
        if not (re.fullmatch(_SOFTWARE, name) and re.fullmatch(_SOFTWARE, version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.state[SOFTWARE_NAME] = name
        context.connection.state[SOFTWARE_VERSION] = version
    # Each new connection sends this request; many of them at once must not delay other requests.
    is_controller = broker.endpoints.is_controller_listener(context.listener)
    image, quorum_level = broker.metadata.image, broker.metadata.raft.kraft_version
    question = ("ApiVersions", context.api_version, is_controller, quorum_level)
    answer = broker.response_cache.get(image, question)
    if answer is None:
        of_broker = SERVED if broker.telemetry is None else SERVED_WITH_TELEMETRY
        served = CONTROLLER_SERVED if is_controller else of_broker
        answer = Encoded(_describe(broker, context.api_version, image, served), context.api_version)
        broker.response_cache.keep(image, question, answer)
    return answer


def _describe(
    broker: ApiVersionsPorts, version: int, image: MetadataImage, served: Mapping[int, tuple[int, int]]
) -> ApiVersionsResponse:
    supported = [
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in SUPPORTED_FEATURES.items()
        if low > 0 or version >= ZERO_MINIMUM_SINCE_VERSION
    ]
    levels = {name: served_level(name, level) for name, level in image.features.items()}
    # The quorum's own feature is not in the metadata's image (KIP-853).
    levels[KRAFT_VERSION] = broker.metadata.raft.kraft_version
    finalized = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
        if level > 0
    ]
    return ApiVersionsResponse(
        api_keys=api_rows(served),
        supported_features=supported,
        finalized_features_epoch=image.offset,
        finalized_features=finalized,
    )

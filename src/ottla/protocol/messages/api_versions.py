"""ApiVersions (18) tells which APIs and versions a server speaks, and its features (KIP-511, KIP-584).

The response header is always version 0, and an unsupported version is answered in version 0.
"""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, since, tagged


class ApiVersionsRequest(Message, key=18, versions="0-4", flexible="3+"):
    """Asks, and names the client's software."""

    client_software_name: str = since(3)
    client_software_version: str = since(3)


class ApiVersionsResponse(Message, key=18, versions="0-4", flexible="3+"):
    """The APIs with their versions, and the features."""

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Int32 = since(1)
    supported_features: list[SupportedFeatureKey] = tagged(0, 3)
    finalized_features_epoch: Int64 = tagged(1, 3, default=-1)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, 3)
    zk_migration_ready: bool = tagged(3, 3)


class ApiVersion(Struct):
    """An element of `ApiVersionsResponse.api_keys`."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    """An element of `ApiVersionsResponse.supported_features`."""

    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    """An element of `ApiVersionsResponse.finalized_features`."""

    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0

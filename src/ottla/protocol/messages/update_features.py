"""UpdateFeatures (57) raises or lowers finalized features. KIP-584, KIP-778."""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, field, since


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    """The feature levels wanted, perhaps as a dry run."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: bool = since(1)


class FeatureUpdateKey(Struct):
    """An element of `UpdateFeaturesRequest.feature_updates`."""

    feature: str = ""
    max_version_level: Int16 = 0
    allow_downgrade: bool = field("0")
    upgrade_type: Int8 = since(1, default=1)


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field("0-1")


class UpdatableFeatureResult(Struct):
    """An element of `UpdateFeaturesResponse.results`."""

    feature: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""

"""The names of Confluent's protobuf schemas: of logical types, parameters and files, and names that are changed."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote_plus

from ottla.connect import data
from ottla.connect.data import Type

NAMESPACE: Final = "io.confluent.connect.protobuf"
ENUM: Final = f"{NAMESPACE}.Enum"
UNION: Final = f"{NAMESPACE}.Union"
TAG: Final = f"{NAMESPACE}.Tag"
"""The parameter with the number of a field."""
TYPE: Final = f"{NAMESPACE}.Type"
"""The parameter with a type of integers, like sint32."""
WRAPPER: Final = f"{NAMESPACE}.Wrapper"
"""The parameter of a oneof's member that is a wrapper message."""
GENERALIZED_ENUM: Final = "org.apache.kafka.connect.data.Enum"
GENERALIZED_UNION: Final = "org.apache.kafka.connect.data.Union"
VARIANT: Final = "org.apache.kafka.connect.data.Variant"
PRECISION: Final = "connect.decimal.precision"
LOGICAL_MESSAGES: Final = {
    data.DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
    data.DATE: ("google.type.Date", "google/type/date.proto"),
    data.TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    data.TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
    VARIANT: ("confluent.type.Variant", "confluent/type/variant.proto"),
}
"""The messages of logical types, and their files."""
WRAPPERS_FILE: Final = "google/protobuf/wrappers.proto"
WRAPPED_TYPES: Final = {
    "google.protobuf.DoubleValue": Type.FLOAT64, "google.protobuf.FloatValue": Type.FLOAT32,
    "google.protobuf.Int64Value": Type.INT64, "google.protobuf.UInt64Value": Type.INT64,
    "google.protobuf.Int32Value": Type.INT32, "google.protobuf.UInt32Value": Type.INT64,
    "google.protobuf.BoolValue": Type.BOOLEAN, "google.protobuf.StringValue": Type.STRING,
    "google.protobuf.BytesValue": Type.BYTES,
}  # fmt: skip
_MAP_SUFFIX: Final = "Entry"
_VALID: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_INVALID_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_]")


def scrubbed(name: str) -> str:
    """Return a valid name in place of an invalid one. Java's URL encoding has the same safe characters but `~`."""
    if not name or _VALID.fullmatch(name):
        return name
    encoded = quote_plus(name, safe="*").replace("~", "%7E")
    if encoded[0].isdigit() or encoded[0] == "_":
        encoded = f"x{encoded}"
    return _INVALID_CHARACTER.sub("_", encoded)


def map_entry(name: str) -> str:
    """Return the name of the message of a map's entries."""
    if "_" in name:
        name = "".join(each.capitalize() for each in name.split("_"))
    return name + _MAP_SUFFIX


def map_field(name: str) -> str:
    """Return the name of a map from the name of its entries' message, with or without a package."""
    package, dot, last = name.rpartition(".")
    if last.endswith(_MAP_SUFFIX):
        last = re.sub(r"(?<!^)([A-Z])", r"_\1", last.removesuffix(_MAP_SUFFIX)).lower()
    return f"{package}{dot}{last}"


def is_map_entry(name: str) -> bool:
    """Whether a message with this name may be a map's entry."""
    return name.endswith(_MAP_SUFFIX)

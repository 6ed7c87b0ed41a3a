"""The delivered transformations and predicates: `module:class` by Kafka's class name. Nothing is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_PACKAGE: Final = "org.apache.kafka.connect.transforms"
_HERE: Final = "ottla.connect.transforms"
_OF_RECORDS: Final = {
    "DropHeaders": "headers",
    "Filter": "routing",
    "InsertHeader": "headers",
    "RegexRouter": "routing",
    "TimestampRouter": "routing",
    "ValueToKey": "fields",
}
_OF_PARTS: Final = {
    "Cast": "cast",
    "ExtractField": "fields",
    "Flatten": "flatten",
    "HeaderFrom": "headers",
    "HoistField": "fields",
    "InsertField": "fields",
    "MaskField": "fields",
    "ReplaceField": "fields",
    "SetSchemaMetadata": "routing",
    "TimestampConverter": "timestamps",
}
TRANSFORMATIONS: Final[Mapping[str, str]] = {
    **{f"{_PACKAGE}.{name}": f"{_HERE}.{module}:{name}" for name, module in _OF_RECORDS.items()},
    **{
        f"{_PACKAGE}.{name}${part}": f"{_HERE}.{module}:{name}.{part}"
        for name, module in _OF_PARTS.items()
        for part in ("Key", "Value")
    },
    "io.debezium.transforms.ByLogicalTableRouter": f"{_HERE}.logical_tables:ByLogicalTableRouter",
    "io.debezium.transforms.ExtractNewRecordState": f"{_HERE}.debezium:ExtractNewRecordState",
    "io.debezium.transforms.outbox.EventRouter": f"{_HERE}.outbox:EventRouter",
    **{f"ottla.{name}": f"{_HERE}.functions:{name}" for name in ("PythonFunction", "Sql")},
}
PREDICATES: Final[Mapping[str, str]] = {
    f"{_PACKAGE}.predicates.{name}": f"{_HERE}.predicates:{name}"
    for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
}

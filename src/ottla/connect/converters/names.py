"""The delivered converters: `module:class` by Kafka's class name. Nothing is imported here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_HERE: Final = "ottla.connect.converters"
CONVERTERS: Final[Mapping[str, str]] = {
    "io.confluent.connect.avro.AvroConverter": f"{_HERE}.avro:AvroConverter",
    "io.confluent.connect.json.JsonSchemaConverter": f"{_HERE}.json_schema:JsonSchemaConverter",
    "io.confluent.connect.protobuf.ProtobufConverter": f"{_HERE}.protobuf:ProtobufConverter",
    "org.apache.kafka.connect.converters.BooleanConverter": f"{_HERE}.simple:BooleanConverter",
    "org.apache.kafka.connect.converters.ByteArrayConverter": f"{_HERE}.simple:ByteArrayConverter",
    "org.apache.kafka.connect.converters.DoubleConverter": f"{_HERE}.simple:DoubleConverter",
    "org.apache.kafka.connect.converters.FloatConverter": f"{_HERE}.simple:FloatConverter",
    "org.apache.kafka.connect.converters.IntegerConverter": f"{_HERE}.simple:IntegerConverter",
    "org.apache.kafka.connect.converters.LongConverter": f"{_HERE}.simple:LongConverter",
    "org.apache.kafka.connect.converters.ShortConverter": f"{_HERE}.simple:ShortConverter",
    "org.apache.kafka.connect.json.JsonConverter": f"{_HERE}.json:JsonConverter",
    "org.apache.kafka.connect.storage.StringConverter": f"{_HERE}.simple:StringConverter",
}
HEADER_CONVERTERS: Final[Mapping[str, str]] = {
    **CONVERTERS,
    "org.apache.kafka.connect.storage.SimpleHeaderConverter": f"{_HERE}.headers:SimpleHeaderConverter",
}

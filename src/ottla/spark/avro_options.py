"""The options about values in Avro: schemas and header. Without pyspark and pyarrow."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.serde.avro import CONFLUENT_HEADER, AvroDecoder
from ottla.serde.avro_schema import AvroSchemaError, Node, parse
from ottla.spark.names import OptionError


def avro_decoder(part: str, formats: Mapping[str, str]) -> AvroDecoder:
    """Return the decoder for these options. Raises OptionError."""
    name = f"{part}.avro.schema"
    if name not in formats:
        raise OptionError(f"{part}.format=avro needs {name}, the schema of the values as JSON")
    writer = parsed_schema(name, formats)
    reader_name = f"{part}.avro.readerschema"
    reader = parsed_schema(reader_name, formats) if reader_name in formats else None
    header = formats.get(f"{part}.avro.header", "none").strip().lower()
    if header not in ("none", "confluent"):
        raise OptionError(f"{part}.avro.header is {header!r}; it must be none (the default) or confluent")
    size = CONFLUENT_HEADER if header == "confluent" else 0
    try:
        return AvroDecoder(writer, reader, size)
    except AvroSchemaError as error:
        raise OptionError(f"{name if reader is None else f'{part}.avro.readerSchema'}: {error}") from None


def parsed_schema(name: str, formats: Mapping[str, str], referenced: tuple[str, ...] = ()) -> Node:
    """Return the schema in the option `name`. Raises OptionError."""
    text = formats[name]
    try:
        return parse(text, referenced)
    except AvroSchemaError as error:
        short = text if len(text) < 200 else f"{text[:200]}..."
        raise OptionError(f"{name.replace('readers', 'readerS')} {error}; it is {short!r}") from None

"""Random schemas and values of Connect's data, from a seed."""

from __future__ import annotations

import struct as binary
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from ottla.connect import data
from ottla.connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema, Type

INTEGERS = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}
TEXTS = ("", "a", "ü€𝄞", '"\\/', "\x00\x01\x1f\x7f\b\f\n\r\t", "\\u001f", "<&>'", "null", " spaces ")


def random_schema(random: Random, depth: int = 3) -> Schema:
    """Return a schema of any type, with all attributes."""
    optional = random.random() < 0.3
    kinds = [*Type] if depth else [each for each in Type if each not in (Type.ARRAY, Type.MAP, Type.STRUCT)]
    kind = random.choice(kinds)
    if random.random() < 0.25:
        made = [data.decimal(random.randrange(6)), data.date(), data.time_of_day(), data.timestamp()]
        return random.choice(made).as_optional() if optional else random.choice(made)
    attributes: dict[str, Any] = {"optional": optional}
    if random.random() < 0.2:
        attributes |= {"name": f"com.example.N{random.randrange(9)}", "version": random.randrange(5), "doc": "ü doc"}
    if random.random() < 0.1:
        attributes["parameters"] = {"p": "x", "q": ""}
    if kind is Type.STRUCT:
        names = random.sample(["id", "name", "größe", "a b", "x.y", 'q"uote', "_1"], random.randrange(6))
        attributes["fields"] = tuple(Field(each, random_schema(random, depth - 1)) for each in names)
    elif kind is Type.ARRAY:
        attributes["value_schema"] = random_schema(random, depth - 1)
    elif kind is Type.MAP:
        keys = random.choice([data.STRING, data.INT8, data.INT64, data.BOOLEAN])
        attributes |= {"key_schema": keys, "value_schema": random_schema(random, depth - 1)}
    schema = Schema(kind, **attributes)
    if kind not in (Type.STRUCT, Type.MAP, Type.ARRAY) and random.random() < 0.15:
        schema = Schema(kind, **attributes, default=random_value(random, Schema(kind)))
    return schema


def random_value(random: Random, schema: Schema) -> Any:
    """Return a value of a schema. Maps have one entry at most, as Java's have no order."""
    if schema.optional and random.random() < 0.2:
        return schema.default if schema.has_default else None
    if schema.name in (DECIMAL, DATE, TIME, TIMESTAMP):
        return _logical(random, schema)
    kind = schema.type
    if kind in INTEGERS:
        limit = 1 << INTEGERS[kind]
        return random.choice([0, 1, -1, limit - 1, -limit, random.randrange(-limit, limit)])
    if kind is Type.STRUCT:
        return {each.name: random_value(random, each.schema) for each in schema.fields}
    if kind is Type.ARRAY:
        assert schema.value_schema is not None
        return [random_value(random, schema.value_schema) for _ in range(random.randrange(3))]
    if kind is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        value = random_value(random, schema.value_schema)
        return {random_value(random, schema.key_schema): value} if random.random() < 0.8 else {}
    return _plain(random, kind)


def _plain(random: Random, kind: Type) -> Any:
    if kind is Type.BOOLEAN:
        return random.random() < 0.5
    if kind is Type.STRING:
        return random.choice(TEXTS)
    if kind is Type.BYTES:
        return random.randbytes(random.randrange(5))
    values = [0.0, 1.0, 0.5, 100.25, 0.001, 0.0009, 1e7, 9999999.0, -123456.5, 1e10, 1.5e-10, 3e20,
              round(random.uniform(-1e6, 1e6), 3)]  # fmt: skip
    value = random.choice(values)
    return binary.unpack(">f", binary.pack(">f", value))[0] if kind is Type.FLOAT32 else value


def _logical(random: Random, schema: Schema) -> Any:
    if schema.name == DECIMAL:
        unscaled = random.choice([0, 1, -1, 127, 128, -128, -129, 255, 10**20, -(10**20), random.randrange(10**9)])
        return Decimal(unscaled).scaleb(-int(schema.parameters["scale"]))
    if schema.name == DATE:
        return date(1970, 1, 1) + timedelta(days=random.randrange(-20_000, 40_000))
    if schema.name == TIME:
        return time(random.randrange(24), random.randrange(60), random.randrange(60), random.randrange(1000) * 1000)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=random.randrange(-(10**12), 4 * 10**12))

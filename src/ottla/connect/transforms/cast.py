"""The transformation Cast."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingError, SettingType, invalid
from ottla.connect.converters.java_text import double_text, float_text, single
from ottla.connect.data import DATE, NO_DEFAULT, TIME, TIMESTAMP, Field, Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.transforms.api import R
from ottla.connect.transforms.base import (
    REPLACE_NULL,
    PartTransformation,
    SchemaCache,
    java_type,
    required_map,
    required_struct,
)
from ottla.connect.transforms.fields import values_of

_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_OUTPUTS: Final = frozenset({*_BITS, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING})
_NUMBER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _casts(name: str, pairs: list[str]) -> tuple[dict[str, Type], Type | None]:
    """Return the types by field, and the type of the whole value. Raises SettingError."""
    if not pairs:
        raise SettingError("Must specify at least one field to cast.")
    found: dict[str, Type] = {}
    whole = None
    for pair in pairs:
        field, colon, text = pair.rpartition(":")
        kind = Type(text.strip().upper()) if text.strip().upper() in Type.__members__ else None
        if kind is None:
            raise invalid(name, pairs, f"Invalid type found in casting spec: {text.strip()}")
        if kind not in _OUTPUTS:
            raise invalid(name, pairs, f"Cast transformation does not support casting to/from {kind}; "
                          f"supported types are {sorted(_OUTPUTS)}")  # fmt: skip
        if ":" in field:
            raise invalid(name, pairs, f"Invalid rename mapping: {pair}")
        if colon:
            found[field.strip()] = kind
        elif len(pairs) > 1:
            raise SettingError(
                "Cast transformations that specify a type to cast the entire value to "
                "may only specify a single cast in their spec"
            )
        else:
            whole = kind
    return found, whole


class Cast(PartTransformation):
    """Convert fields, or the whole key or value, to other types."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("spec", SettingType.LIST,
                    "Pairs field:type, or one type for the whole value: int8, int16, int32, int64, float32, float64, "
                    "boolean, string. Bytes can only become strings.",
                    importance=Importance.HIGH, validator=lambda name, value: _casts(name, value) and None),
            REPLACE_NULL,
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._types, self._whole = _casts("spec", settings["spec"])
        self._with_default: bool = settings["replace.null.with.default"]
        self._schema = SchemaCache(self._built)

    def _built(self, schema: Schema) -> Schema:
        if self._whole is not None:
            built = Schema(self._whole, schema.optional, schema.name, schema.version, schema.doc,
                           parameters=schema.parameters)  # fmt: skip
            return built if not schema.has_default else replace(built, default=self._cast(schema, schema.default))
        fields = []
        for field in schema.fields:
            kind = self._types.get(field.name)
            if kind is not None:
                default = field.schema.default if field.schema.has_default else NO_DEFAULT
                if default is not NO_DEFAULT and default is not None:
                    default = cast(field.schema, default, kind)
                fields.append(Field(field.name, Schema(kind, field.schema.optional, default=default)))
            else:
                fields.append(field)
        return replace(schema, fields=tuple(fields))

    def _cast(self, schema: Schema | None, value: Any) -> Any:
        assert self._whole is not None
        return cast(schema, value, self._whole)

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if value is None:
            return record
        if self._whole is not None:
            built = None if schema is None else self._schema(schema)
            return self.part.replaced(record, built, self._cast(schema, value))
        if schema is None:
            updated = dict(required_map(value, "cast types"))
            for name, kind in self._types.items():
                updated[name] = cast(None, updated.get(name), kind)
            return self.part.replaced(record, None, updated)
        updated = values_of(schema, required_struct(schema, value, "cast types"), with_default=self._with_default)
        for name in self._types.keys() & updated.keys():
            updated[name] = cast(schema.fields_by_name[name].schema, updated[name], self._types[name])
        return self.part.replaced(record, self._schema(schema), updated)


def cast(schema: Schema | None, value: Any, kind: Type) -> Any:
    """Convert a value to a type, with Java's rules for overflow. Raises DataError."""
    if value is None:
        return None
    if isinstance(value, (dict, list)) or (isinstance(value, (bytes, Decimal)) and kind is not Type.STRING):
        name = schema.type if schema is not None else java_type(value)
        raise DataError(f"Cast transformation does not support casting to/from {name}")
    if kind is Type.STRING:
        return _text(value, schema)
    if schema is not None and schema.name in (DATE, TIME, TIMESTAMP):
        value = _encoded(value)
    try:
        if kind is Type.BOOLEAN:
            if isinstance(value, str):
                return value.lower() == "true"
            return value if isinstance(value, bool) else _integer(value, 64) != 0
        if kind in _BITS:
            return _integer(value, _BITS[kind])
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise DataError(f"Value ({value}) was out of range for requested data type") from error
    return single(number) if kind is Type.FLOAT32 else number


def _integer(value: Any, bits: int) -> int:
    """Return the integer of a type that Java makes of a value: numbers lose their high bits, texts must fit."""
    half = 1 << bits - 1
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value) or not -half <= int(value) < half:
            raise ValueError(value)
        return int(value)
    if isinstance(value, float):
        # Java narrows to 32 bits first, and to less from there.
        limit = 1 << (63 if bits == 64 else 31)
        whole = 0 if math.isnan(value) else int(max(-limit, min(limit - 1, value)))
        value = min(whole, limit - 1)
    return (int(value) + half) % (2 * half) - half


def _encoded(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - _EPOCH).total_seconds() * 1000)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    return value


def _text(value: Any, schema: Schema | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value) if schema is not None and schema.type is Type.FLOAT32 else double_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return value.strftime("%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    return str(value)

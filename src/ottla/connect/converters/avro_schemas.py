"""Connect's schemas as Avro schemas and back, with the texts of Confluent's AvroData 7, so that schema ids agree.

What Avro does not have is in properties: `connect.name`, `connect.version`, `connect.doc`, `connect.parameters`,
`connect.default` and `connect.type`. An optional type is a union with null. A map whose keys are not plain strings is
an array of records, and a union of several types a struct with one field for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.connect import data
from ottla.connect.converters import logical
from ottla.connect.data import Field, Schema, Type
from ottla.connect.errors import DataError

AvroType = Any
"""An Avro schema as JSON."""

NAMESPACE: Final = "io.confluent.connect.avro"
UNION: Final = f"{NAMESPACE}.Union"
_MAP_ENTRY: Final = "MapEntry"
_ENUM: Final = f"{NAMESPACE}.Enum"
_FIELD_DEFAULT: Final = f"{NAMESPACE}.field.default"
_FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
_RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
_PRECISION: Final = "connect.decimal.precision"
_PRIMITIVES: Final = {
    Type.INT8: "int", Type.INT16: "int", Type.INT32: "int", Type.INT64: "long", Type.FLOAT32: "float",
    Type.FLOAT64: "double", Type.BOOLEAN: "boolean", Type.STRING: "string", Type.BYTES: "bytes",
}  # fmt: skip
_TYPES: Final = {
    "int": Type.INT32, "long": Type.INT64, "float": Type.FLOAT32, "double": Type.FLOAT64, "boolean": Type.BOOLEAN,
    "string": Type.STRING, "bytes": Type.BYTES,
}  # fmt: skip
_LOGICAL: Final = {data.DATE: "date", data.TIME: "time-millis", data.TIMESTAMP: "timestamp-millis"}
_FROM_LOGICAL: Final = {
    ("int", "date"): data.date(),
    ("int", "time-millis"): data.time_of_day(),
    ("long", "timestamp-millis"): data.timestamp(),
}
_DEEPEST: Final = 100
_MOST_PARTS: Final = 50_000
"""How many types a schema may have with all that it names, which may double at each level."""


def is_string_map(schema: Schema) -> bool:
    """Whether a MAP is a map of Avro."""
    assert schema.key_schema is not None
    return schema.name is None and schema.key_schema.type is Type.STRING and not schema.key_schema.optional


def raw(schema: Schema, value: Any) -> Any:
    """Return the number or the bytes of a value with a logical type. Raises DataError."""
    if schema.name == data.DECIMAL:
        return logical.decimal_to_bytes(value, logical.decimal_scale(schema))
    if schema.name == data.DATE:
        return logical.date_to_days(value)
    if schema.name == data.TIME:
        return logical.time_to_ms(value)
    return logical.timestamp_to_ms(value) if schema.name == data.TIMESTAMP else value


def typed(schema: Schema, value: Any) -> Any:
    """Return the value with a logical type of a number or bytes. Raises DataError."""
    if schema.name == data.DECIMAL:
        return logical.decimal_from_bytes(value, logical.decimal_scale(schema))
    if schema.name == data.DATE:
        return logical.date_from_days(value)
    if schema.name == data.TIME:
        return logical.time_from_ms(value)
    return logical.timestamp_from_ms(value) if schema.name == data.TIMESTAMP else value


class AvroSchemaWriter:
    """Writes one Connect schema. A named struct is defined once and named afterwards."""

    def __init__(self, *, with_metadata: bool = True, with_enums: bool = False) -> None:
        self._with_metadata, self._with_enums = with_metadata, with_enums
        self._defined: dict[str, Schema] = {}
        self._unnamed = 0
        self._depth = -1

    def written(self, schema: Schema, namespace: str = "") -> AvroType:
        """Return the Avro schema. Raises DataError."""
        made = self._without_null(schema, namespace)
        if not schema.optional:
            return made
        return [made, "null"] if schema.has_default and schema.default is not None else ["null", made]

    def _without_null(self, schema: Schema, namespace: str) -> AvroType:
        self._depth += 1
        _check_depth(self._depth)
        made = self._typed(schema, namespace)
        self._depth -= 1
        return made

    def _typed(self, schema: Schema, namespace: str) -> AvroType:
        if schema.type is Type.STRUCT:
            return self._union(schema, namespace) if schema.name == UNION else self._struct(schema, namespace)
        if self._with_enums and _ENUM in schema.parameters:
            return self._enum(schema, namespace)
        made: dict[str, Any]
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            made = {"type": "array", "items": self.written(schema.value_schema, namespace)}
        elif schema.type is Type.MAP:
            made = self._map(schema, namespace)
        else:
            made = {"type": _PRIMITIVES[schema.type]}
            if schema.name == data.DECIMAL:
                made["scale"] = logical.decimal_scale(schema)
                made["precision"] = int(schema.parameters.get(_PRECISION, 64))
            elif schema.type in (Type.INT8, Type.INT16):
                made["connect.type"] = schema.type.lower()
        made |= self._metadata(schema)
        kind = "decimal" if schema.name == data.DECIMAL else _LOGICAL.get(schema.name or "")
        if kind is not None:
            made["logicalType"] = kind
        return made["type"] if len(made) == 1 else made

    def _metadata(self, schema: Schema) -> dict[str, Any]:
        if not self._with_metadata:
            return {}
        rows = {
            "connect.doc": schema.doc,
            "connect.version": schema.version,
            "connect.parameters": dict(schema.parameters) or None,
            "connect.default": default_json(schema, schema.default) if schema.has_default else None,
            "connect.name": schema.name,
        }
        return {name: value for name, value in rows.items() if value is not None}

    def _struct(self, schema: Schema, namespace: str) -> AvroType:
        if schema.name is None:
            self._unnamed += 1
            name = f"{NAMESPACE}.ConnectDefault{self._unnamed if self._unnamed > 1 else ''}"
        else:
            name = schema.name
            if name in self._defined:
                return self._reference(name, schema, namespace)
            self._defined[name] = schema
        names, own = _names(name, namespace)
        fields = [self._field(each.name, each.schema, own) for each in schema.fields]
        return {"type": "record", **names, "fields": fields, **self._metadata(schema)}

    def _reference(self, name: str, schema: Schema, namespace: str) -> str:
        if self._defined[name].fields != schema.fields:
            raise DataError(f"The schema has two different structs with the name {name}")
        own, _, short = name.rpartition(".")
        return short if own == namespace else name

    def _field(self, name: str, schema: Schema, namespace: str) -> dict[str, Any]:
        field: dict[str, Any] = {"name": name, "type": self.written(schema, namespace)}
        if schema.has_default and schema.default is not None:
            field["default"] = default_json(schema, schema.default)
        elif schema.optional:
            field["default"] = None
        return field

    def _map(self, schema: Schema, namespace: str) -> dict[str, Any]:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        if is_string_map(schema):
            return {"type": "map", "values": self.written(schema.value_schema, namespace)}
        names, own = _names(schema.name or f"{NAMESPACE}.{_MAP_ENTRY}", namespace)
        fields = [self._field("key", schema.key_schema, own), self._field("value", schema.value_schema, own)]
        internal = {} if schema.name is None else {"connect.internal.type": _MAP_ENTRY}
        return {"type": "array", "items": {"type": "record", **names, "fields": fields, **internal}}

    def _enum(self, schema: Schema, namespace: str) -> AvroType:
        name = schema.parameters[_ENUM]
        if name in self._defined:
            own, _, short = name.rpartition(".")
            return short if own == namespace else name
        self._defined[name] = schema
        names, _ = _names(name, namespace)
        prefix = f"{_ENUM}."
        symbols = [value for key, value in schema.parameters.items() if key.startswith(prefix)]
        return {"type": "enum", **names, "symbols": symbols, **self._metadata(schema)}

    def _union(self, schema: Schema, namespace: str) -> AvroType:
        return [self._without_null(each.schema, namespace) for each in schema.fields]


def _check_depth(depth: int) -> None:
    if depth > _DEEPEST:
        raise DataError(f"The Avro schema is nested more than {_DEEPEST} deep")


def _names(name: str, namespace: str) -> tuple[dict[str, Any], str]:
    """Return the attributes with the name of a type, and its namespace."""
    own, _, short = name.rpartition(".")
    return {"name": short, **({"namespace": own} if own != namespace else {})}, own


def default_json(schema: Schema, value: Any) -> Any:
    """Return a default value as Avro writes it in JSON."""
    if value is None:
        return None
    value = raw(schema, value)
    if schema.type is Type.BYTES:
        return value.decode("latin-1")
    if schema.type is Type.STRUCT:
        return {each.name: default_json(each.schema, value.get(each.name)) for each in schema.fields}
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [default_json(schema.value_schema, each) for each in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        if is_string_map(schema):
            return {key: default_json(schema.value_schema, each) for key, each in value.items()}
        return [
            {"key": default_json(schema.key_schema, key), "value": default_json(schema.value_schema, each)}
            for key, each in value.items()
        ]
    return value


class AvroSchemaReader:
    """Reads Avro schemas. Names are known to the schemas that are read later."""

    def __init__(self) -> None:
        self._named: dict[str, Schema] = {}
        self._open: set[str] = set()
        self._parts = 0
        self._sizes: dict[str, int] = {}
        self._deepest = 0
        """The deepest level of the record that is being read."""
        self._heights: dict[str, int] = {}
        """How many levels named types have below them."""

    def read(self, avro: AvroType, namespace: str = "", depth: int = 0) -> Schema:
        """Return the Connect schema. Raises DataError."""
        self._reach(depth)
        self._count(1)
        if isinstance(avro, list):
            return self._of_union(avro, namespace, depth)
        if isinstance(avro, str):
            return self._of_name(avro, namespace, depth)
        kind = avro["type"]
        if isinstance(kind, (dict, list)):
            return self.read(kind, namespace, depth + 1)
        if kind == "array":
            made = self._of_array(avro, namespace, depth)
        elif kind == "map":
            made = data.mapping(data.STRING, self.read(avro["values"], namespace, depth + 1))
        elif kind in ("record", "error"):
            return self._of_record(avro, namespace, depth)
        elif kind in ("enum", "fixed"):
            made = self._of_named(avro, namespace)
        else:
            made = self._of_primitive(avro, namespace, depth)
        return _with_metadata(made, avro)

    def _reach(self, depth: int) -> None:
        _check_depth(depth)
        self._deepest = max(self._deepest, depth)

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > _MOST_PARTS:
            raise DataError(f"The Avro schema has more than {_MOST_PARTS} types with all that it names")

    def _of_name(self, name: str, namespace: str, depth: int) -> Schema:
        if name in _TYPES:
            return Schema(_TYPES[name])
        if name == "null":
            raise DataError("Standalone null schemas are not supported by this converter")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self._open or name in self._open:
            raise DataError(f"The Avro schema {full} contains itself, which Connect's data cannot")
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise DataError(f"The Avro schema does not define {full}")
        self._count(self._sizes.get(full, self._sizes.get(name, 1)))
        self._reach(depth + self._heights.get(full, self._heights.get(name, 0)))
        return found

    def _of_primitive(self, avro: Mapping[str, Any], namespace: str, depth: int) -> Schema:
        kind: str = avro["type"]
        meaning: str = avro.get("logicalType", "")
        if (kind, meaning) in _FROM_LOGICAL:
            return _FROM_LOGICAL[kind, meaning]
        if kind == "bytes" and meaning == "decimal":
            return _decimal(avro)
        if avro.get("connect.type") in ("int8", "int16"):
            return Schema(Type(avro["connect.type"].upper()))
        return self._of_name(kind, namespace, depth)

    def _of_array(self, avro: Mapping[str, Any], namespace: str, depth: int) -> Schema:
        items = avro["items"]
        if isinstance(items, dict) and (
            items.get("connect.internal.type") == _MAP_ENTRY
            or (items.get("name"), items.get("namespace")) == (_MAP_ENTRY, NAMESPACE)
        ):
            own = items.get("namespace", namespace)
            keys, values = (self.read(each["type"], own, depth + 1) for each in items["fields"])
            return data.mapping(keys, values)
        return data.array(self.read(items, namespace, depth + 1))

    def _of_named(self, avro: Mapping[str, Any], namespace: str) -> Schema:
        full, _ = _full_name(avro, namespace)
        if avro["type"] == "enum":
            symbols = {f"{_ENUM}.{each}": each for each in avro["symbols"]}
            made = Schema(Type.STRING, name=full, parameters={_ENUM: full, **symbols})
        elif avro.get("logicalType") == "decimal":
            made = _decimal(avro)
        else:
            made = Schema(Type.BYTES, name=full, parameters={"connect.fixed.size": str(avro["size"])})
        self._named[full] = made = _with_metadata(made, avro)
        return made

    def _of_record(self, avro: Mapping[str, Any], namespace: str, depth: int) -> Schema:
        full, own = _full_name(avro, namespace)
        self._open.add(full)
        before, outer, self._deepest = self._parts, self._deepest, depth
        parameters: dict[str, str] = {}
        if avro.get("doc") is not None:
            parameters[_RECORD_DOC] = avro["doc"]
        fields = []
        for field in avro["fields"]:
            schema = self.read(field["type"], own, depth + 1)
            if field.get("doc") is not None:
                parameters[_FIELD_DOC + field["name"]] = field["doc"]
            if field.get("default") is not None and not schema.has_default and not schema.optional:
                default = default_value(schema, field["default"])
                schema = replace(schema, default=default, parameters={**schema.parameters, _FIELD_DEFAULT: "true"})
            fields.append(Field(field["name"], schema))
        self._open.discard(full)
        self._sizes[full], self._heights[full] = self._parts - before, self._deepest - depth
        self._deepest = max(self._deepest, outer)
        name = None if full.startswith(f"{NAMESPACE}.ConnectDefault") else full
        made = Schema(Type.STRUCT, name=name, parameters=parameters, fields=tuple(fields))
        self._named[full] = made = _with_metadata(made, avro)
        return made

    def _of_union(self, avro: list[Any], namespace: str, depth: int) -> Schema:
        others = [each for each in avro if each != "null"]
        if any(isinstance(each, list) for each in others):
            raise DataError("A union of the Avro schema has a union as member, which Avro does not allow")
        # A union is not a level: chains of optional and of required records may have the same length.
        if len(others) == 1:
            made = self.read(others[0], namespace, depth)
            return made.as_optional() if len(avro) > 1 else made
        fields = []
        for each in others:
            schema = self.read(each, namespace, depth).as_optional()
            fields.append(Field(union_field(each), schema))
        return Schema(Type.STRUCT, optional=len(others) < len(avro), name=UNION, fields=tuple(fields))


def union_field(avro: AvroType) -> str:
    """Return the name of the field for a type of a union."""
    if isinstance(avro, str):
        return avro.rpartition(".")[2]
    kind = avro["type"]
    return str(avro["name"] if kind in ("record", "enum", "fixed") else kind)


def _full_name(avro: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    name: str = avro["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    own = avro.get("namespace", namespace) or ""
    return (f"{own}.{name}" if own else name), own


def _decimal(avro: Mapping[str, Any]) -> Schema:
    made = data.decimal(int(avro.get("scale", 0)))
    precision = avro.get("precision", 64)
    return made if precision == 64 else replace(made, parameters={**made.parameters, _PRECISION: str(precision)})


def _with_metadata(schema: Schema, avro: Mapping[str, Any]) -> Schema:
    changes: dict[str, Any] = {}
    if "connect.name" in avro:
        changes["name"] = avro["connect.name"]
    if "connect.version" in avro:
        changes["version"] = int(avro["connect.version"])
    if "connect.doc" in avro:
        changes["doc"] = avro["connect.doc"]
    if "connect.parameters" in avro:
        changes["parameters"] = {**schema.parameters, **avro["connect.parameters"]}
    if not changes and "connect.default" not in avro:
        return schema
    changed = replace(schema, **changes)
    if "connect.default" in avro:
        return replace(changed, default=default_value(changed, avro["connect.default"]))
    return changed


def default_value(schema: Schema, given: Any) -> Any:
    """Return a default value of Avro's JSON as Connect's data."""
    if given is None:
        return None
    if schema.type is Type.BYTES:
        return typed(schema, given.encode("latin-1"))
    if schema.type is Type.STRUCT:
        return {each.name: default_value(each.schema, given.get(each.name)) for each in schema.fields}
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [default_value(schema.value_schema, each) for each in given]
    if schema.type is Type.MAP:
        assert schema.value_schema is not None
        assert schema.key_schema is not None
        if isinstance(given, list):
            keys = schema.key_schema
            return {
                default_value(keys, each["key"]): default_value(schema.value_schema, each["value"]) for each in given
            }
        return {key: default_value(schema.value_schema, each) for key, each in given.items()}
    return typed(schema, given)

"""The transformation TimestampConverter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar, Final

from ottla.connect import data
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingError, SettingType, one_of
from ottla.connect.converters.date_format import DateFormat
from ottla.connect.data import Field, Schema, Type
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

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LOGICAL: Final = (data.DATE, data.TIME, data.TIMESTAMP)
_SCHEMAS: Final = {
    "string": data.STRING,
    "unix": data.INT64,
    "Date": data.date(),
    "Time": data.time_of_day(),
    "Timestamp": data.timestamp(),
}


def _to_millis(number: int, precision: str) -> int:
    if precision == "seconds":
        return number * 1000
    return number // {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}[precision]


def _from_millis(number: int, precision: str) -> int:
    if precision == "seconds":
        return int(number / 1000)
    return number * {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}[precision]


def _check(schema: Schema) -> None:
    if schema.name not in _LOGICAL and schema.type not in (Type.STRING, Type.INT64):
        raise DataError(f"Schema {schema.type} does not correspond to a known timestamp type format")


class TimestampConverter(PartTransformation):
    """Convert times between texts, Unix times, and Connect's Date, Time and Timestamp."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("field", SettingType.STRING, "The field with the time; empty: the whole value.", "",
                    Importance.HIGH),
            Setting("target.type", SettingType.STRING, "The new form of the time.", importance=Importance.HIGH,
                    validator=one_of("string", "unix", "Date", "Time", "Timestamp")),
            Setting("format", SettingType.STRING, "The SimpleDateFormat pattern of texts.", "", Importance.MEDIUM),
            Setting("unix.precision", SettingType.STRING, "The unit of Unix times.", "milliseconds", Importance.LOW,
                    one_of("nanoseconds", "microseconds", "milliseconds", "seconds")),
            REPLACE_NULL,
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._field: str = settings["field"]
        self._target: str = settings["target.type"]
        self._precision: str = settings["unix.precision"]
        self._with_default: bool = settings["replace.null.with.default"]
        pattern: str = settings["format"]
        if self._target == "string" and not pattern.strip():
            raise SettingError("TimestampConverter requires format option to be specified when using string timestamps")
        self._format: DateFormat | None = None
        if pattern.strip():
            try:
                self._format = DateFormat(pattern)
            except ValueError as error:
                needs = "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps"
                raise SettingError(f"{needs}: {pattern}") from error
        self._schema = SchemaCache(self._built)

    def _built(self, schema: Schema) -> Schema:
        if not self._field:
            return self._type_schema(optional=schema.optional)
        fields = [
            Field(each.name, self._type_schema(optional=each.schema.optional)) if each.name == self._field else each
            for each in schema.fields
        ]
        return replace(schema, fields=tuple(fields))

    def _type_schema(self, *, optional: bool) -> Schema:
        schema = _SCHEMAS[self._target]
        return schema.as_optional() if optional else schema

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if schema is None:
            if not self._field:
                return self.part.replaced(record, None, self._converted(value, None))
            if value is None:
                return self.part.replaced(record, None, None)
            updated = dict(required_map(value, "converting timestamp formats"))
            updated[self._field] = self._converted(updated.get(self._field), None)
            return self.part.replaced(record, None, updated)
        built = self._schema(schema)
        if not self._field:
            _check(schema)
            return self.part.replaced(record, built, self._converted(value, schema))
        if value is None:
            return self.part.replaced(record, built, None)
        given = required_struct(schema, value, "converting timestamp formats")
        updated = values_of(schema, given, with_default=self._with_default)
        if self._field in schema.fields_by_name:
            updated[self._field] = self._converted(updated[self._field], schema.fields_by_name[self._field].schema)
        return self.part.replaced(record, built, updated)

    def _converted(self, value: Any, schema: Schema | None) -> Any:
        if value is None:
            return None
        moment = self._moment(value, schema)
        if self._target == "unix":
            return _from_millis((moment - _EPOCH) // _MILLISECOND, self._precision)
        if self._target == "Date":
            return moment.date()
        if self._target == "Time":
            return moment.time()
        if self._target == "Timestamp":
            return moment
        assert self._format is not None
        return self._format.format(moment)

    def _moment(self, value: Any, schema: Schema | None) -> datetime:
        if schema is not None:
            _check(schema)
        if isinstance(value, datetime):
            return value
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, time):
            return datetime.combine(_EPOCH.date(), value, UTC)
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise DataError(f"TimestampConverter does not support {java_type(value)} objects as timestamps")
        if isinstance(value, int):
            try:
                return _EPOCH + timedelta(milliseconds=_to_millis(value, self._precision))
            except OverflowError as error:
                raise DataError(f"The timestamp {value} is outside of the years 1 to 9999") from error
        if self._format is None:
            raise DataError("TimestampConverter needs the option format to read a text")
        try:
            return self._format.parse(value)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"Could not parse timestamp: value ({value}) does not match pattern ({self._format.pattern})"
            ) from error

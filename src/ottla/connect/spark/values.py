"""Keys and values of topics by the converters of a connector. Does not import Spark.

A converter is mapped to a format of `format("ottla")`: strings and bytes are columns, JSON has the fields of a DDL
text, and converters of a registry have the schemas of its subjects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ottla.connect.errors import ConnectError
from ottla.connect.worker.settings import WorkerSettings
from ottla.registry_client.settings import is_registry_setting


class Form(StrEnum):
    """How bytes become columns."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    ENVELOPE = "envelope"
    """JSON with `schema` and `payload`."""
    REGISTRY = "registry"


_FORMS: Final = {
    "ByteArray": Form.BYTES,
    "String": Form.TEXT,
    "Json": Form.JSON,
    "Avro": Form.REGISTRY,
    "Protobuf": Form.REGISTRY,
    "JsonSchema": Form.REGISTRY,
}
_REGISTRY_OPTIONS: Final = frozenset({"use.latest.version", "auto.register.schemas"})


@dataclass(frozen=True)
class Part:
    """The key or the value of a topic."""

    name: str
    form: Form
    schema: str = ""
    """The fields as DDL; empty: the text or the bytes are the column."""
    numeric_decimals: bool = False
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def reads_fields(self) -> bool:
        """Whether a reader gets a column with fields."""
        return self.form is Form.REGISTRY or (self.form in (Form.JSON, Form.ENVELOPE) and bool(self.schema))

    def read_options(self) -> dict[str, str]:
        """Return the options of a read from a topic."""
        if self.form is Form.REGISTRY:
            return {f"{self.name}.format": "registry", **self.registry}
        if not self.reads_fields:
            return {}
        fields = f"payload STRUCT<{self.schema}>" if self.form is Form.ENVELOPE else self.schema
        return {f"{self.name}.format": "json", f"{self.name}.schema": fields}

    def write_options(self) -> dict[str, str]:
        """Return the options of a write to a topic."""
        if self.form is not Form.REGISTRY:
            return {}
        return {f"{self.name}.format": "registry", **self.registry}


def part_of(name: str, worker: WorkerSettings, config: Mapping[str, str], *, reads: bool) -> Part:
    """Return the form of `key` or `value` in the topics of a connector. Raises ConnectError."""
    setting = f"{name}.converter"
    source: Mapping[str, str] = config if config.get(setting) else worker.given
    converter = config.get(setting) or worker.get(setting)
    form = _FORMS.get(converter.rpartition(".")[2].removesuffix("Converter"))
    if form is None:
        known = ", ".join(f"{each}Converter" for each in _FORMS)
        raise ConnectError(f"{setting}={converter} has no format in Spark; those with one are {known}")
    own = {key.removeprefix(f"{setting}."): text for key, text in source.items() if key.startswith(f"{setting}.")}
    schema = config.get(f"spark.{name}.schema", "").strip()
    if form is Form.JSON and own.get("schemas.enable", "true").strip().lower() != "false":
        form = Form.ENVELOPE
        # Without fields, a key is of no use for most tables, and stays bytes; a value would be lost.
        if reads and not schema and name == "value":
            raise ConnectError(
                f"spark.{name}.schema is missing: with {setting}.schemas.enable=true it has the fields of the payload "
                "as DDL, such as id BIGINT, name STRING"
            )
    registry = {key: text for key, text in own.items() if key in _REGISTRY_OPTIONS or is_registry_setting(key)}
    numeric = own.get("decimal.format", "BASE64").upper() == "NUMERIC"
    return Part(name, form, schema, numeric, registry if form is Form.REGISTRY else {})

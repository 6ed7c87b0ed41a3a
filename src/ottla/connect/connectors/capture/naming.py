"""Names of topics, schemas and fields: Debezium's rules for characters that Kafka or Avro does not allow."""

from __future__ import annotations

import re
from typing import Final

from ottla.connect.connectors.capture.settings import Options

_NO_TOPIC: Final = re.compile(r"[^A-Za-z0-9._-]")
_NO_AVRO_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
MOST_NAME: Final = 249


class Names:
    """The names of a configuration."""

    def __init__(self, options: Options) -> None:
        self._prefix, self._delimiter = options.prefix, options.text("topic.delimiter")
        self._schema_mode = options.text("schema.name.adjustment.mode")
        self._field_mode = options.text("field.name.adjustment.mode")
        self.transactions = self._topic(options.text("topic.transaction"))
        self.messages = self._topic("message")
        self.heartbeat = _valid(self._delimiter.join((options.text("topic.heartbeat.prefix"), self._prefix)))

    def _topic(self, *parts: str) -> str:
        return _valid(self._delimiter.join((self._prefix, *parts)))

    def topic(self, schema: str, table: str) -> str:
        """The topic of a table."""
        return self._topic(schema, table)

    def schema(self, name: str) -> str:
        """A schema's name, adjusted: dots separate its parts."""
        if self._schema_mode == "none":
            return name
        return ".".join(_avro(part, self._schema_mode) for part in name.split("."))

    def field(self, name: str) -> str:
        """A field's name, adjusted."""
        return name if self._field_mode == "none" else _avro(name, self._field_mode)


def _valid(topic: str) -> str:
    name = _NO_TOPIC.sub("_", topic)[:MOST_NAME]
    return "_" * len(name) if name in (".", "..") else name


def _avro(name: str, mode: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        return "_" if mode == "avro" else f"_u{ord(found[0]):04x}"

    changed = _NO_AVRO_NAME.sub(replaced, name)
    return f"_{changed}" if changed[:1].isdigit() else changed

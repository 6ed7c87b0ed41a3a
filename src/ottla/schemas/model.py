"""A schema as clients register it and a registry stores it; and the errors of its text.

`Metadata` and `RuleSet` are stored data: the registry returns them and does not interpret them, except for the
comparison of `latestWithMetadata`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol


class SchemaType(StrEnum):
    """The types of schemas, by their names in Confluent's API."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Reference(NamedTuple):
    """A schema that another schema uses under `name`: a full name in Avro, a URI in JSON Schema, an import path."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a client sends it. `metadata` and `rule_set` have the form of Confluent's JSON."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None


class InvalidSchema(Exception):
    """The text is not a valid schema of its type; the message names the place and the reason."""


class Incompatibility(NamedTuple):
    """A reason why a reader's schema cannot read data of a writer's schema.

    `kind` is Confluent's name of the rule (`READER_FIELD_MISSING_DEFAULT_VALUE`), `path` the place in the schema
    (`/fields/2`), `message` a sentence with the field and the reason. The sentence names the schemas "the reader
    schema" and "the writer schema". `details` are more facts for Avro, the `additionalInfo` of Confluent's answers. An
    empty `kind` is a reason beside the rules; its message says all.
    """

    kind: str
    path: str
    message: str
    details: str = ""


class ParsedSchema(Protocol):
    """A schema whose text is valid."""

    @property
    def canonical(self) -> str:
        """The text that is stored and compared: Confluent's canonical string of the type."""
        ...

    def normalized(self) -> str:
        """The canonical text after normalization (`normalize=true`)."""
        ...

    def incompatibilities(self, writer: Any) -> list[Incompatibility]:
        """The reasons why this schema, as the reader's, cannot read data written with `writer` (of the same type)."""
        ...

"""Settings of serializers and deserializers, by Confluent's names, beside the settings of the registry client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla import registry_client
from ottla.clients.errors import ConfigurationError
from ottla.clients.options import Option, read_options, unknown_setting
from ottla.clients.serializers.subjects import SubjectStrategy, strategy
from ottla.registry_client.settings import has_setting

if TYPE_CHECKING:
    from ottla.registry_client import RegistryClient

_STRATEGY: Final = "The subject of a schema: TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy."
_COMMON: Final = (
    Option("subject.name.strategy", "object", "TopicNameStrategy", _STRATEGY),
    Option("key.subject.name.strategy", "object", None, "The same for keys."),
    Option("value.subject.name.strategy", "object", None, "The same for values."),
    Option("use.latest.version", "bool", False, "Use the latest version of the subject."),
    Option("use.latest.with.metadata", "object", None, "Use the latest version whose metadata has these properties."),
    Option(
        "validate", "bool", True, "JSON Schema: whether values are validated.", aliases=("json.fail.invalid.schema",)
    ),
)
SERIALIZER_OPTIONS: Final = (
    *_COMMON,
    Option("auto.register.schemas", "bool", True, "Whether an unknown schema is registered."),
    Option("normalize.schemas", "bool", False, "Whether schemas are normalized before they are registered or found."),
    Option(
        "reference.subject.name.strategy",
        "object",
        None,
        "Protobuf: a function from the import path of a file to its subject, by default the path.",
    ),
    Option("use.schema.id", "int", None, "Serialize with the schema of this id.", low=1),
    Option("schema.id.serializer", "object", "PrefixSchemaIdSerializer", "The place of the schema id: prefix, header."),
)
DESERIALIZER_OPTIONS: Final = _COMMON


class Settings:
    """The settings of a serializer or deserializer, and the client of its registry."""

    def __init__(self, rows: tuple[Option, ...], registry: RegistryClient | None, given: Mapping[str, object]) -> None:
        of_registry: dict[str, object] = {}
        own: dict[str, object] = {}
        known = {name.replace(".", "_") for row in rows for name in (row.name, *row.aliases)}
        for name, value in given.items():
            if name.replace(".", "_") in known:
                own[name] = value
            elif has_setting(name):
                of_registry[name] = value
            else:
                raise ConfigurationError(unknown_setting(name, rows))
        self.values: dict[str, Any] = read_options(rows, own)
        if registry is None:
            registry = _client(of_registry)
        elif of_registry:
            raise ConfigurationError(f"There is no setting {next(iter(of_registry))!r} beside a given registry client")
        self.registry = registry

    def strategy(self, part: str) -> SubjectStrategy:
        name = f"{part}.subject.name.strategy"
        own = self.values[name.replace(".", "_")]
        if own is not None:
            return strategy(name, own)
        return strategy("subject.name.strategy", self.values["subject_name_strategy"])

    def in_header(self) -> bool:
        """Whether the schema id is written to a header. Raises ConfigurationError."""
        given = str(self.values["schema_id_serializer"])
        name = given.rpartition(".")[2].lower().removesuffix("schemaidserializer")
        if name not in ("prefix", "header"):
            raise ConfigurationError(
                f"schema.id.serializer is {given!r}; it must be PrefixSchemaIdSerializer or HeaderSchemaIdSerializer"
            )
        return name == "header"


def _client(given: Mapping[str, object]) -> RegistryClient:
    try:
        return registry_client.RegistryClient(given)
    except registry_client.RegistrySettingError as error:
        raise ConfigurationError(str(error)) from error

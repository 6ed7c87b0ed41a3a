"""The schema registry of a command: from options, environment and profiles to a client.

The first of these wins: `--registry`, `-X`, the `--command-config` file, the profile, $OTTLA_REGISTRY,
http://127.0.0.1:8081. The other settings of the registry (`basic.auth.user.info`, `schema.registry.ssl.*`) are from
`-X`, the file or the profile.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Final

import click

from ottla import registry_client
from ottla.cli import late
from ottla.cli.commands import Choice, Option, Options
from ottla.cli.connect import registry_settings
from ottla.common.failure import Failure, reading
from ottla.registry_client.errors import RegistrySettingError
from ottla.schemas.model import Reference, Schema, SchemaType

if TYPE_CHECKING:
    from ottla.registry_client import RegistryClient

DEFAULT_URL: Final = "http://127.0.0.1:8081"
_SUFFIXES: Final = {".avsc": SchemaType.AVRO, ".json": SchemaType.JSON, ".proto": SchemaType.PROTOBUF}


def registry_option() -> Option:
    return Option(
        "--registry URL,..", f"the schema registry; default: $OTTLA_REGISTRY, the profile's, or {DEFAULT_URL}"
    )


def type_option() -> Option:
    return Option(
        "--type",
        "the type of the schema; default: by the file name, .avsc .json .proto",
        type=Choice(tuple(each.value.lower() for each in SchemaType)),
        name="schema_type",
    )


def open_registry(options: Options) -> RegistryClient:
    """Return a client of the registry until the end of the running command. Raises Failure with exit code 2."""
    settings = registry_settings(options)
    given = options.registry or settings.pop("schema.registry.url", None) or os.environ.get("OTTLA_REGISTRY")
    settings.pop("schema.registry.url", None)
    try:
        client = registry_client.RegistryClient({**settings, "schema.registry.url": given or DEFAULT_URL})
    except ImportError as error:
        raise Failure(str(error), exit_code=2) from error
    except RegistrySettingError as error:
        raise Failure(str(error), exit_code=2) from error
    click.get_current_context().call_on_close(client.close)
    return client


def json_values() -> ModuleType:
    """Return the module that converts values of a registry to JSON. Raises Failure if a package is not installed."""
    try:
        return late.registry_values
    except ImportError as error:
        raise Failure(str(error), exit_code=2) from error


def read_schema(path: str, schema_type: str | None, references: tuple[str, ...] = ()) -> Schema:
    """Read a schema from a file. Raises Failure with exit code 2."""
    with reading(f"the file {path}"), open(path, encoding="utf-8") as file:
        text = file.read()
    kind = SchemaType(schema_type.upper()) if schema_type else _SUFFIXES.get(os.path.splitext(path)[1])  # noqa: PTH122
    if kind is None:
        raise Failure(
            f"the type of {path} is unknown", "--type avro, json or protobuf names the type of its schema.", exit_code=2
        )
    return Schema(kind, text, tuple(map(_reference, references)))


def _reference(word: str) -> Reference:
    name, _, place = word.partition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject or not version.isdecimal():
        raise Failure(f"--reference {word!r} is not of the form NAME=SUBJECT:VERSION", exit_code=2)
    return Reference(name, subject, int(version))

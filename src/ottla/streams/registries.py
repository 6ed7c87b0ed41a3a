"""The schema registry of an input, an output, a pipeline or a run: a URL, or settings of a registry's client.

The first of these wins: the input's or output's own, the pipeline's, the run's, $OTTLA_REGISTRY, and a registry on this
machine. They are not mixed, so that no credentials reach another registry. A value may be `${env:NAME}`, which is read
where the pipeline starts: programs need not contain secrets. Does not import Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla.streams import late
from ottla.streams.errors import StreamsError

Given: TypeAlias = str | Mapping[str, str]
"""A URL (or several with commas), or settings by Confluent's names, with or without `schema.registry.`."""
LOCAL: Final = "http://127.0.0.1:8081"
URL: Final = "schema.registry.url"
_VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class Registry:
    """The settings of a registry's client, as options of `format("ottla")`; some are secret."""

    settings: tuple[tuple[str, str], ...] = field(repr=False)

    def options(self) -> dict[str, str]:
        """Return the settings with the values of variables. Raises StreamsError for a variable that is not set."""
        return {name: _resolved(name, value) for name, value in self.settings}


def registry(what: str, given: Given | None) -> Registry | None:
    """Return the registry that a program gives. Raises StreamsError, without values: they may be secret."""
    if given is None:
        return None
    if isinstance(given, str):
        return Registry(((URL, given),))
    if not isinstance(given, Mapping):
        raise StreamsError(f"{what}: registry is a {type(given).__name__}; it must be a URL, or settings by name")
    settings: dict[str, str] = {}
    for name, value in given.items():
        option = name if late.is_registry_setting(name) else f"schema.registry.{name}"
        if not isinstance(value, str):
            raise StreamsError(f"{what}: registry has {name!r} with a {type(value).__name__}; values must be strings")
        try:
            if not _VARIABLE.search(value):
                late.check_setting(name, value)
        except ValueError as error:  # RegistrySettingError
            raise StreamsError(f"{what}: registry: {error}") from None
        settings[option] = value
    if URL not in settings:
        raise StreamsError(f"{what}: registry has no url")
    return Registry(tuple(settings.items()))


def first(*chosen: Registry | None) -> dict[str, str]:
    """Return the options of the first registry that is given, or of the default one. Raises StreamsError."""
    found = next((each for each in chosen if each is not None), None)
    return {URL: os.environ.get("OTTLA_REGISTRY") or LOCAL} if found is None else found.options()


def _resolved(name: str, value: str) -> str:
    def read(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise StreamsError(f"The registry's {name} needs the environment variable {match[1]}, which is not set")
        return found

    return _VARIABLE.sub(read, value)

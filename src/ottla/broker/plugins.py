"""Loads Python objects that settings name, in place of Kafka's Java classes.

A name is an entry point of the group `ottla.security`, or `module:attribute`.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError

GROUP = "ottla.security"


def load(setting: str, name: str) -> Any:
    """Return the object that `name`, the value of `setting`, stands for. Raises KafkaError (INVALID_CONFIG)."""
    try:
        for entry in entry_points(group=GROUP, name=name):
            return entry.load()
        module, colon, attribute = name.partition(":")
        if not colon:
            problem = f"it is not an entry point of the group {GROUP} and not of the form module:attribute"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{setting}={name}: {problem}")
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{setting}={name} cannot be loaded: {error}") from error
    return found

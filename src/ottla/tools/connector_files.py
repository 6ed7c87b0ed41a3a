"""Configurations of connectors in files: properties, JSON or TOML.

JSON and TOML may have the form of the REST API, `{"name": ..., "config": {...}}`. Tables of TOML are prefixes of names:
`[transforms.mask]` with `type = "..."` is transforms.mask.type.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.common.failure import Failure, reading
from ottla.config.properties import parse_properties

_OF_WORKERS: Final = ("bootstrap.servers", "key.converter", "value.converter", "group.id", "listeners")


def read_connector(path: str) -> dict[str, str]:
    """Read a configuration; a file without a name is the name. Raises Failure with exit code 2."""
    with reading(f"the file {path}"):
        data = Path(path).read_bytes()
    try:
        config = flat(path, _parsed(path, data))
    except ValueError as error:
        raise Failure(f"{path}: {error}", exit_code=2) from error
    if not is_worker_file(config):
        config.setdefault("name", Path(path).stem)
    return config


def _parsed(path: str, data: bytes) -> Any:
    """Parse the contents of a file. Raises ValueError."""
    kind = Path(path).suffix.lower()
    if kind == ".json":
        return json.loads(data)
    if kind == ".toml":
        return tomllib.loads(data.decode())
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what Java does with every file
    return parse_properties(text)


def is_worker_file(config: Mapping[str, str]) -> bool:
    """Whether settings belong to a worker and not to a connector."""
    return "connector.class" not in config and any(name in config for name in _OF_WORKERS)


def flat(path: str, given: Any) -> dict[str, str]:
    """Return a configuration as texts by name. Raises Failure with exit code 2."""
    if not isinstance(given, dict):
        raise Failure(f"{path} must have an object with the settings of a connector", exit_code=2)
    if isinstance(given.get("config"), dict):
        inner = {"name": str(given["name"])} if "name" in given else {}
        return {**inner, **flat(path, given["config"])}
    found: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, dict):
            found.update({f"{name}.{inner}": text for inner, text in flat(path, value).items()})
        elif isinstance(value, list):
            found[name] = ",".join(map(_text, value))
        elif value is not None:
            found[name] = _text(value)
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

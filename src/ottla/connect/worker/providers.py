"""Values from outside in configurations: `${env:NAME}`, `${file:PATH:KEY}`, `${dir:PATH:FILE}` (KIP-297, KIP-421).

They are resolved when a connector or task starts, and credentials for each connection to a broker. The configuration in
topics and in the REST API has the variables. `Secrets` remembers the values, and hides them in error messages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from ottla.common.secret_settings import has_secret_name
from ottla.common.settings import ChangingText
from ottla.connect.config.definition import HIDDEN, SettingError
from ottla.connect.errors import InvalidConfigError

_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
_SHORTEST_SECRET: Final = 3
_CREDENTIALS: Final = ("sasl.username", "sasl.password", "sasl.jaas.config")
_MAX_FILE_BYTES: Final = 1 << 20


class Provider(Protocol):
    """Returns the value of a key at a path. Raises InvalidConfigError that names both."""

    def get(self, path: str, key: str) -> str:
        """Return a value."""
        ...


class EnvVarProvider:
    """Environment variables; `allowlist.pattern` limits their names (KIP-887)."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._allowed = re.compile(settings.get("allowlist.pattern", ".*"))

    def get(self, path: str, key: str) -> str:
        """Return an environment variable."""
        if path:
            raise InvalidConfigError(f"${{env:{path}:{key}}}: an environment variable has no path")
        value = os.environ.get(key) if self._allowed.fullmatch(key) else None
        if value is None:
            raise InvalidConfigError(f"${{env:{key}}}: there is no such environment variable, or it is not allowed")
        return value


class _FilesProvider:
    """Files below `allowed.paths` (KIP-993), if that is set."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        listed = [each.strip() for each in settings.get("allowed.paths", "").split(",") if each.strip()]
        self._allowed = [Path(each).resolve() for each in listed]

    def _read(self, path: Path, variable: str) -> str:
        resolved = path.resolve()
        if self._allowed and not any(resolved.is_relative_to(each) for each in self._allowed):
            raise InvalidConfigError(f"{variable}: {path} is not below allowed.paths")
        try:
            with resolved.open("rb") as file:
                return file.read(_MAX_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfigError(f"{variable}: could not read {path}: {error}") from error


class FileProvider(_FilesProvider):
    """Keys of properties files."""

    def get(self, path: str, key: str) -> str:
        """Return the value of a key."""
        variable = f"${{file:{path}:{key}}}"
        values = read_properties(self._read(Path(path), variable))
        if key not in values:
            raise InvalidConfigError(f"{variable}: the file has no key {key}")
        return values[key]


class DirectoryProvider(_FilesProvider):
    """Files of a directory, each with one value: secrets of Kubernetes and Docker."""

    def get(self, path: str, key: str) -> str:
        """Return the contents of a file."""
        variable = f"${{dir:{path}:{key}}}"
        if "/" in key or key in ("", ".", ".."):
            raise InvalidConfigError(f"{variable}: {key!r} is not the name of a file")
        return self._read(Path(path) / key, variable)


_CLASSES: Final[Mapping[str, Callable[[Mapping[str, str]], Provider]]] = {
    "EnvVarConfigProvider": EnvVarProvider,
    "FileConfigProvider": FileProvider,
    "DirectoryConfigProvider": DirectoryProvider,
}
_DEFAULT_CLASSES: Final = {
    "env": "EnvVarConfigProvider",
    "file": "FileConfigProvider",
    "dir": "DirectoryConfigProvider",
}


class Providers:
    """The providers of a worker by name: `config.providers`, and always env, file and dir."""

    def __init__(self, worker: Mapping[str, str] | None = None) -> None:
        given = worker or {}
        listed = [each.strip() for each in given.get("config.providers", "").split(",") if each.strip()]
        self._providers = {name: _provider(name, given) for name in dict.fromkeys([*_DEFAULT_CLASSES, *listed])}

    def resolve(self, config: Mapping[str, str], secrets: Secrets | None = None) -> dict[str, str]:
        """Return the settings with values for variables. Raises InvalidConfigError that names the variable.

        Credentials of the brokers are ChangingText: clients read them again for each connection.
        """
        found = {name: self._resolved(value, secrets) for name, value in config.items()}
        for name, raw in config.items():
            if name.endswith(_CREDENTIALS) and found[name] != raw:
                found[name] = ChangingText(found[name], partial(self._resolved, raw, None))
                if secrets is not None:
                    secrets.add(found[name])
        return found

    def _resolved(self, value: str, secrets: Secrets | None) -> str:
        def replaced(found: re.Match[str]) -> str:
            provider = self._providers.get(found[1])
            if provider is None:
                return found[0]
            text = provider.get(found[3] or "", found[4])
            if secrets is not None:
                secrets.add(text)
            return text

        return _VARIABLE.sub(replaced, value) if value and "${" in value else value


def _provider(name: str, worker: Mapping[str, str]) -> Provider:
    prefix = f"config.providers.{name}."
    given = worker.get(f"{prefix}class", _DEFAULT_CLASSES.get(name, ""))
    simple = given.rpartition(".")[2]
    if simple not in _CLASSES:
        known = ", ".join(_CLASSES)
        raise SettingError(f"Invalid value {given} for configuration {prefix}class: the providers are {known}")
    settings = {key.removeprefix(f"{prefix}param."): value for key, value in worker.items() if key.startswith(prefix)}
    return _CLASSES[simple](settings)


def has_changing_credentials(config: Mapping[str, str]) -> bool:
    """Whether credentials of the brokers are variables."""
    return any(name.endswith(_CREDENTIALS) and _VARIABLE.search(value) for name, value in config.items())


class Secrets:
    """Values that no message may show."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._changing: list[ChangingText] = []
        for each in values:
            self.add(each)

    def copy(self) -> Secrets:
        """Return secrets to which others may be added."""
        made = Secrets(self._values)
        made._changing = list(self._changing)
        return made

    def add_named(self, settings: Mapping[str, str]) -> None:
        """Hide the values of settings whose names say that they are secret."""
        for name, value in settings.items():
            if has_secret_name(name):
                self.add(value)

    def add(self, value: str) -> None:
        """Hide a value from now on; one or two characters would hide too much."""
        if isinstance(value, ChangingText) and not any(each is value for each in self._changing):
            self._changing.append(value)
        for each in {str(value), value.strip()}:
            if len(each) >= _SHORTEST_SECRET:
                self._values.add(each)

    def hide(self, text: str) -> str:
        """Return a text without the values."""
        later = {value for each in self._changing for value in list(each.values) if len(value) >= _SHORTEST_SECRET}
        for each in sorted(self._values | later, key=len, reverse=True):
            text = text.replace(each, HIDDEN)
        return text


def read_properties(text: str) -> dict[str, str]:
    """Parse a java.util.Properties file: comments, continued lines, and the separators `=`, `:` and space."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        found = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*", line)
        assert found is not None
        values[_unescaped(found[1])] = _unescaped(line[found.end() :])
    return values


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replaced, text)

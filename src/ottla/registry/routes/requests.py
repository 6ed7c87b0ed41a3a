"""A request of the API: names of the path, parameters of the query, properties of the JSON body.

Values are converted as Confluent's registry converts them: a number may be written as a string, unknown properties and
parameters are ignored, a wrong number in the query means that the path does not exist (404).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from itertools import islice
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qs

from ottla.registry import errors
from ottla.registry.identity import canonical_metadata, canonical_rule_set, rule_set_error
from ottla.registry.records import decode_reference
from ottla.registry.routes.paths import Path
from ottla.registry.state import State
from ottla.registry.subjects import context_prefix, is_default_context, normalize, qualify, split
from ottla.schemas.model import Reference, Schema, SchemaType

R = TypeVar("R")
Item = TypeVar("Item")
MAY_READ: Final = "ottla.may_read"
"""The key in the state of a scope of a function from subjects to whether the client may read them; absent: all."""
_INT_MAX: Final = 2**31 - 1
_VERSION_DIGITS: Final = 10


class Registry(Protocol):
    """The registry behind the routes."""

    @property
    def state(self) -> State:
        """The state of this instance."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster of the topic."""
        ...

    @property
    def group_id(self) -> str:
        """The group of the instances."""
        ...

    async def change(self, build: Callable[[State], tuple[list[Any], R]]) -> R:
        """Run `build` on the caught-up state of the primary, append its records, and return its result."""
        ...


class Request:
    """One request."""

    __slots__ = ("_query", "_receive", "_scope", "path", "registry", "values")

    def __init__(
        self,
        registry: Registry,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        path: Path,
        values: list[str],
    ) -> None:
        self.registry = registry
        self.path = path
        self.values = values
        """The variable segments of the path."""
        self._scope = scope
        self._receive = receive
        self._query: dict[str, list[str]] | None = None

    @property
    def state(self) -> State:
        """The state of this instance."""
        return self.registry.state

    def contexts_to_search(self, subject: str) -> list[str]:
        """Return the name of a subject in the other contexts, as far as the client may read it there."""
        may_read: Callable[[str], bool] | None = self._scope.get("state", {}).get(MAY_READ)
        prefixes = map(context_prefix, self.state.context_names()[1:])
        others = (prefix + split(subject).subject for prefix in prefixes)
        return [other for other in others if may_read is None or may_read(other)]

    # The path

    def subject(self) -> str:
        """Return the subject of the path, with its alias replaced."""
        return self._resolved(self.values[0])

    def settings_subject(self) -> str | None:
        """Return the subject of the path of settings or modes, None for all subjects. Aliases do not apply."""
        if not self.values or is_default_context(self.values[0]):
            return None
        return normalize(self.values[0])

    def _resolved(self, name: str) -> str:
        subject = normalize(name)
        alias = (self.state.settings.stored_config(subject) or {}).get("alias")
        return qualify(subject, alias) if alias else subject

    def version(self) -> int:
        """Return the version in the second variable segment; -1 is the latest one."""
        text = self.values[1].strip()
        if text.lower() == "latest":
            return -1
        number = _integer(text)
        if number is None:
            raise errors.invalid_version(self.values[1])
        if number < 1 and number != -1:
            raise errors.invalid_version(number)
        return number

    def id(self) -> int:
        """Return the id in the first variable segment."""
        number = _integer(self.values[0])
        if number is None:
            raise errors.http_error(404, "Not Found")
        return number

    # The query

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.texts(name)[0] if self.texts(name) else default

    def texts(self, name: str) -> list[str]:
        """Return all values of a parameter of the query."""
        if self._query is None:
            raw = self._scope["query_string"]
            self._query = parse_qs(raw.decode("latin-1"), keep_blank_values=True) if raw else {}
        return self._query.get(name, [])

    def flag(self, name: str) -> bool:
        """Return a parameter that is `true` or anything else."""
        return bool(self._scope["query_string"]) and self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return a number of the query."""
        text = self.text(name)
        if not text:
            return default
        number = _integer(text)
        if number is None:
            raise errors.http_error(404, "Not Found")
        return number

    def page(self, items: Iterable[Item], largest: int = _INT_MAX) -> list[Item]:
        """Return the items that `offset` and `limit` select; no more of them are made."""
        offset = max(0, self.number("offset", 0))
        limit = self.number("limit", -1)
        return list(islice(items, offset, offset + (limit if 0 < limit <= largest else largest)))

    def query_subject(self) -> str | None:
        """Return the parameter `subject` with the context of the path, and its alias replaced."""
        name = self.path.qualified(self.text("subject"))
        return self._resolved(name) if name else None

    def subject_prefix(self, default: str) -> str:
        """Return the parameter `subjectPrefix` with the context of the path."""
        if self.path.prefix is not None:
            return self.path.qualified(self.text("subjectPrefix"))
        return self.text("subjectPrefix", default)

    # The body

    async def body(self) -> dict[str, Any]:
        """Return the JSON object in the body."""
        parts: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise errors.bad_request("The client disconnected")
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return parse_body(b"".join(parts))


def parse_body(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises RegistryError."""
    if not data.strip():
        raise errors.missing_body()
    try:
        value = json.loads(data)
        if b"\\u" in data:
            # An escape of half a character has no form in UTF-8.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise errors.bad_request(f"The body is not valid JSON: {error}") from error
    if value is None:
        raise errors.missing_body()
    if not isinstance(value, dict):
        raise errors.bad_request("The body must be a JSON object")
    return value


def schema_of(body: Mapping[str, Any]) -> Schema:
    """Return the schema in a body. Its text is empty if it is absent. Raises RegistryError."""
    kind = body_text(body, "schemaType") or "AVRO"
    try:
        schema_type = SchemaType(kind)
    except ValueError as error:
        raise errors.invalid_schema(f"Invalid schema type {kind}") from error
    metadata, rule_set = body.get("metadata"), body.get("ruleSet")
    return Schema(
        schema_type,
        body_text(body, "schema") or "",
        _references(body.get("references")),
        None if metadata is None else metadata_of(metadata),
        None if rule_set is None else rule_set_of(rule_set),
    )


def metadata_of(value: Any) -> dict[str, Any]:
    """Return metadata in canonical form. Raises RegistryError."""
    try:
        return canonical_metadata(value)
    except errors.InvalidValue as error:
        raise errors.bad_request(str(error)) from error


def rule_set_of(value: Any) -> dict[str, Any]:
    """Return a rule set in canonical form, if its rules are valid. Raises RegistryError."""
    try:
        rules = canonical_rule_set(value)
    except errors.InvalidValue as error:
        raise errors.bad_request(str(error)) from error
    reason = rule_set_error(rules)
    if reason is not None:
        raise errors.invalid_rule_set(reason)
    return rules


def _references(value: Any) -> tuple[Reference, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise errors.bad_request("references must be an array")
    try:
        return tuple(map(decode_reference, value))
    except errors.InvalidValue as error:
        raise errors.invalid_schema(f"Invalid reference: {error}") from error


def body_text(body: Mapping[str, Any], name: str) -> str | None:
    """Return a string of a body; a number or boolean becomes one. Raises RegistryError."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise errors.bad_request(f"{name} must be a string")


def body_number(body: Mapping[str, Any], name: str, default: int) -> int:
    """Return a number of a body; it may be written as a string. Raises RegistryError."""
    value = body.get(name)
    if value is None:
        return default
    number = _integer(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > _INT_MAX:
        raise errors.bad_request(f"{name} must be a number of 32 bits")
    return number


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _VERSION_DIGITS):
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if abs(number) <= _INT_MAX else None
